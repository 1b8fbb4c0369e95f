"""Create rows in every table that the admin shows, for benchmarks/admin.py, with one statement per table.

Encrypted columns are empty. No mail is pending and nothing is due, so nothing is sent.
"""

from __future__ import annotations

import django

django.setup()

from django.db import connection  # noqa: E402

ACCOUNTS, MESSAGES, INCIDENTS, LINES = 5_000, 100_000, 20_000, 50_000
SOME = {
    "some_account": "accounts_user",
    "some_channel": "alerts_alertchannel",
    "some_page": "statuspages_statuspage",
    "some_monitor": "monitors_monitor",
    "some_project": "projects_project",
}


def run(statement: str, count: int = 1) -> None:
    """Run a statement for the numbers 1 to `count`, which replace `<n>`.

    `<some_account>` and the other names in SOME are replaced by the existing ids in turn.
    """
    numbers = f"generate_series(1, {count}) AS n"
    for name, table in SOME.items():
        if f"<{name}>" in statement:
            numbers += f", (SELECT array_agg(id ORDER BY id) AS ids FROM {table}) AS {name}"
            statement = statement.replace(f"<{name}>", f"{name}.ids[1 + n % array_length({name}.ids, 1)]")
    with connection.cursor() as cursor:
        cursor.execute(statement.replace("<n>", numbers))


STATEMENTS = (
    (
        """
        INSERT INTO accounts_user (
            password, is_superuser, public_id, email, is_staff, is_active, created_at, plan_id)
        SELECT '', false, 'usr_' || n, 'user' || n || '@example.com', false, true, now(), 1 + n % 2 FROM <n>
        """,
        ACCOUNTS,
    ),
    ("UPDATE monitors_monitor SET name = 'Shop ' || id, owner_id = (SELECT min(id) FROM accounts_user) + id % 5000", 1),
    (
        """
        INSERT INTO projects_project (public_id, name, created_at)
        SELECT 'prj_' || n, 'Shop ' || n, now() FROM generate_series(1, 5000) AS n
        """,
        1,
    ),
    (
        """
        INSERT INTO projects_membership (public_id, project_id, user_id, role, created_at)
        SELECT 'mbr_' || n, <some_project>, <some_account>, 'owner', now() FROM <n>
        """,
        ACCOUNTS,
    ),
    (
        """
        INSERT INTO tokens_session (public_id, lookup, digest, created_at, expires_at, user_id, password_hash)
        SELECT 'sin_' || n, 's' || n, '', now(), now(), <some_account>, '' FROM <n>
        """,
        INCIDENTS,
    ),
    (
        """
        INSERT INTO tokens_projecttoken (public_id, lookup, digest, created_at, project_id, created_by_id, name)
        SELECT 'tok_' || n, 't' || n, '', now(), <some_project>, <some_account>, 'CI' FROM <n>
        """,
        INCIDENTS,
    ),
    (
        """
        INSERT INTO usersessions_usersession (user_id, created_at, ip, last_seen_at, session_key, user_agent, data)
        SELECT <some_account>, now(), '192.0.2.7', now(), 'k' || n, 'Firefox', '{}' FROM <n>
        """,
        INCIDENTS,
    ),
    (
        """
        INSERT INTO account_emailaddress (user_id, email, verified, "primary")
        SELECT id, email, true, true FROM accounts_user ON CONFLICT DO NOTHING
        """,
        1,
    ),
    (
        """
        INSERT INTO mfa_authenticator (user_id, type, data, created_at)
        SELECT id, 'totp', '{}', now() FROM accounts_user
        """,
        1,
    ),
    (
        """
        INSERT INTO social_auth_usersocialauth (user_id, provider, uid, id_key, extra_data, created, modified)
        SELECT id, 'github', id::text, 'id', '{}', now(), now() FROM accounts_user
        """,
        1,
    ),
    (
        """
        INSERT INTO alerts_alertchannel (
            public_id, owner_id, created_at, name, kind, config, hint, enabled, topics, scope,
            remind_every_hours, failures)
        SELECT 'chn_' || n, <some_account>, now(), 'Shop', 'email', '', 'a@example.com', true, '{down}', 'all', 24, 0
          FROM <n>
        """,
        ACCOUNTS,
    ),
    (
        """
        INSERT INTO alerts_delivery (
            public_id, channel_id, created_at, state, next_try_at, give_up_at, attempts)
        SELECT 'dlv_' || n, <some_channel>, now(), CASE WHEN n % 500 = 0 THEN 'dead' ELSE 'sent' END, now(), now(), 1
          FROM <n>
        """,
        MESSAGES,
    ),
    (
        """
        INSERT INTO alerts_deliveryitem (delivery_id, channel_id, source, payload, at)
        SELECT id, channel_id, 'd' || id, '{"event_type": "down", "monitor": "Shop"}', now() FROM alerts_delivery
        """,
        1,
    ),
    (
        """
        INSERT INTO incidents_incident (
            public_id, owner_id, monitor_id, monitor_public_id, name, reason_code, started_at, resolved_at, resolution)
        SELECT 'inc_' || n, <some_account>, <some_monitor>, '', 'Shop', 'timeout', now(), now(), 'recovered' FROM <n>
        """,
        INCIDENTS,
    ),
    (
        """
        INSERT INTO incidents_incidentevent (public_id, incident_id, type, at, text, data)
        SELECT 'evt_' || id || type, id, type, now(), 'Confirmed.', '{}'
          FROM incidents_incident, unnest(ARRAY['first_failure', 'confirmed', 'resolved']) AS type
        """,
        1,
    ),
    (
        """
        INSERT INTO incidents_flappingspell (monitor_id, started_at, last_change_at, ended_at)
        SELECT <some_monitor>, now(), now(), now() FROM <n>
        """,
        INCIDENTS,
    ),
    (
        """
        INSERT INTO incidents_maintenancewindow (
            public_id, owner_id, created_at, name, starts_at, ends_at, time_zone, rrule, all_monitors)
        SELECT 'mwn_' || n, <some_account>, now(), 'Shop', now(), now(), 'UTC', '', true FROM <n>
        """,
        INCIDENTS,
    ),
    (
        """
        INSERT INTO monitors_expirywarning (monitor_id, subject, expires_at, threshold_days, at, processed_at)
        SELECT <some_monitor>, 'domain', now() + n * interval '1 s', 7, now(), now() FROM <n>
        """,
        INCIDENTS,
    ),
    (
        """
        INSERT INTO monitors_dnschange (monitor_id, at, added, removed, added_count, removed_count)
        SELECT <some_monitor>, now() - n * interval '1 s', '["192.0.2.1"]', '[]', 1, 0 FROM <n>
        """,
        INCIDENTS,
    ),
    (
        """
        INSERT INTO monitors_domainregistration (name, next_lookup_at, failures)
        SELECT 'shop' || n || '.example.com', now() + interval '1 year', 0 FROM <n>
        """,
        ACCOUNTS,
    ),
    ("INSERT INTO monitors_pinggap (started_at, held_until, ended_at) SELECT now(), now(), now() FROM <n>", 1_000),
    ("INSERT INTO monitors_schedulergap (started_at, ended_at) SELECT now(), now() FROM <n>", 1_000),
    (
        """
        INSERT INTO connectors_connector (user_id, provider, created_at, tokens, tokens_version)
        SELECT id, 'vercel', now(), '', gen_random_uuid() FROM accounts_user
        """,
        1,
    ),
    (
        """
        INSERT INTO connectors_import (user_id, provider, external_ref, monitor_id)
        SELECT owner_id, 'vercel', 'prj_' || id, id FROM monitors_monitor
        """,
        1,
    ),
    (
        """
        INSERT INTO statuspages_statuspage (
            public_id, owner_id, created_at, version, name, slug, description, published, theme, password_hash,
            show_window_names)
        SELECT 'stp_' || n, <some_account>, now(), 1, 'Shop', 'shop-' || n, '', true, 'auto', '', false FROM <n>
        """,
        ACCOUNTS,
    ),
    (
        """
        INSERT INTO statuspages_pagenote (public_id, page_id, title, created_at)
        SELECT 'stn_' || n, <some_page>, 'Shop', now() FROM <n>
        """,
        INCIDENTS,
    ),
    (
        """
        INSERT INTO statuspages_pageevent (page_id, kind, source, title, text, at, addressed_at, ended)
        SELECT <some_page>, 'note', 'n' || n, 'Shop', 'So it is.', now(), now(), false FROM <n>
        """,
        INCIDENTS,
    ),
    (
        """
        INSERT INTO statuspages_subscriber (
            public_id, page_id, created_at, address, address_digest, hint, confirmed_at)
        SELECT 'sub_' || n, <some_page>, now(), '', n::text::bytea, 'a@example.com', now() FROM <n>
        """,
        LINES,
    ),
    (
        """
        INSERT INTO statuspages_pagemail (subscriber_id, state, next_try_at, give_up_at, attempts)
        SELECT id, CASE WHEN id % 500 = 0 THEN 'dead' ELSE 'sent' END, now(), now(), 1 FROM statuspages_subscriber
        """,
        1,
    ),
    (
        """
        INSERT INTO audit_entry (
            at, action, actor_type, actor_id, public_id, actor_public_id, actor_email, project_public_id, target_id,
            target_name, user_agent, details)
        SELECT now(), 'sign_in.succeeded', 'user', <some_account>, 'aud_' || n, '', 'user@example.com', '', '', '', '',
               '{}'
          FROM <n>
        """,
        LINES,
    ),
    (
        """
        INSERT INTO django_admin_log (
            action_time, object_id, object_repr, action_flag, change_message, content_type_id, user_id)
        SELECT now(), n::text, 'Shop', 2, 'Paused.', (SELECT min(id) FROM django_content_type), <some_account>
          FROM <n>
        """,
        LINES,
    ),
    ("INSERT INTO auth_group (name) SELECT 'Helpers ' || n FROM <n>", 100),
    ("VACUUM ANALYZE", 1),
)

for statement, count in STATEMENTS:
    run(statement, count)
