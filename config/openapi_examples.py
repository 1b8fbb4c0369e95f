"""Examples of openapi.json by operation id. A test validates each against the schema it stands beside."""

from __future__ import annotations

from typing import Any

MONITOR_ID = "mon_7vxq2mzk4p3hd6ynbc5tw2era4"
PROJECT_ID = "prj_k3r5wq7zx2d4m6nbhy2ct3vpfe"
CHANNEL_ID = "chn_x4mz7vq2kd6yp3nb5rwth2cfea"
TOKEN_ID = "tok_d2n4b6vczx7mq3wk5rthy2pfea"  # noqa: S105  (an id, no secret)
NOW = 1_772_366_400_000  # 2026-03-01 12:00:00 UTC
DAY = 86_400_000

_MONITOR: dict[str, Any] = {
    "id": MONITOR_ID,
    "name": "Shop",
    "type": "http",
    "url": "https://shop.example/health",
    "method": "GET",
    "interval_sec": 60,
    "slow_ms": 1500,
    "timeout_ms": 10000,
    "expect_status": None,
    "follow_redirects": False,
    "check_ssl": True,
    "check_domain": False,
    "domain_expires_at": None,
    "cert_expires_at": NOW + 60 * DAY,
    "content_rules": [{"type": "json_field", "path": "status", "equals": "ok"}],
    "request_headers": [{"name": "Authorization", "type": "bearer"}],
    "request_body": None,
    "fail_threshold": 3,
    "recover_threshold": 1,
    "grace_sec": 60,
    "last_ping_at": None,
    "muted_until": None,
    "enabled": True,
    "project_id": PROJECT_ID,
    "status": "up",
    "status_since": NOW - 3 * DAY,
    "last_latency_ms": 182,
    "last_connect_ms": 24,
    "last_ttfb_ms": 176,
    "uptime_24h": 99.93,
    "avg_latency_24h": 190.4,
    "last_checked_at": NOW,
}
_MONITOR_INPUT = {
    "url": "https://shop.example/health",
    "name": "Shop",
    "method": "GET",
    "interval_sec": 60,
    "check_ssl": True,
    "content_rules": [{"type": "json_field", "path": "status", "equals": "ok"}],
    "request_headers": [{"name": "Authorization", "value": "Bearer s3cret", "type": "bearer"}],
    "project_id": PROJECT_ID,
}
_UNAVAILABLE = (
    "Answered with status 503 (the service is unavailable) instead of 2xx or 3xx; "
    "check whether it is overloaded or under maintenance."
)
_CHECK = {
    "id": "chk_q6y2mvd4xk7zp3nb5rwth2cfea",
    "checked_at": NOW,
    "status": "up",
    "latency_ms": 182,
    "connect_ms": 24,
    "ttfb_ms": 176,
    "http_status": 200,
    "reason_code": None,
    "detail": None,
}
_FAILED_CHECK = {
    "id": "chk_b4n7zx2kq5wd3mrv6ythp2cfea",
    "checked_at": NOW - 60_000,
    "status": "down",
    "latency_ms": 95,
    "connect_ms": 22,
    "ttfb_ms": 93,
    "http_status": 503,
    "reason_code": "http_failure",
    "detail": _UNAVAILABLE,
}
_EVIDENCE = {
    "address": "203.0.113.7:443",
    "tls_version": "TLSv1.3",
    "tls_issuer": "C = US, O = Let's Encrypt, CN = E7",
    "status_line": "HTTP/1.1 503 Service Unavailable",
    "headers": [{"name": "server", "value": "nginx"}, {"name": "retry-after", "value": "30"}],
    "body": "<html><head><title>503 Service Temporarily Unavailable</title></head></html>",
    "redirects": [{"status": 301, "url": "https://shop.example/health"}],
}
_PROJECT = {"id": PROJECT_ID, "name": "Shop", "created_at": NOW - 30 * DAY}
_TOKEN = {
    "id": TOKEN_ID,
    "project_id": PROJECT_ID,
    "name": "CI",
    "created_at": NOW,
    "last_used_at": None,
    "expires_at": NOW + DAY,
}
_MEMBER = {
    "id": "mem_y5tq7bz2xk4wd6nmrv3hcp2fea",
    "email": "sam@shop.example",
    "role": "member",
    "status": "active",
    "created_at": NOW,
    "expires_at": None,
}
_ACCOUNT = {
    "id": "usr_w3nd5yq7zxk2v4mb6rthc2pfea",
    "email": "sam@shop.example",
    "plan": {"name": "pro", "min_interval_sec": 60, "monitor_limit": 1000},
    "usage": {"monitors": 4},
}
_CHANNEL: dict[str, Any] = {
    "id": CHANNEL_ID,
    "project_id": PROJECT_ID,
    "name": "On call",
    "kind": "webhook",
    "hint": "https://hooks.shop.example",
    "enabled": True,
    "topics": ["down", "recovered", "expiry", "reminder"],
    "monitors": "chosen",
    "scope_project_id": None,
    "monitor_ids": [MONITOR_ID],
    "remind_every_hours": 4,
    "created_at": NOW,
    "confirmed_at": NOW,
    "failures": 0,
    "last_sent_at": None,
    "secret": None,
}
_DELIVERY: dict[str, Any] = {
    "id": "dlv_n2kq7zx4wd5mrv3b6ythp2cfea",
    "state": "dead",
    "created_at": NOW - DAY,
    "next_try_at": NOW - 60_000,
    "attempts": 21,
    "last_error": "The receiver answered with status 503.",
    "done_at": NOW,
    "items": [
        {
            "news": "down",
            "incident_id": "inc_h5tq7bz2xk4wd6nmrv3ycp2fea",
            "monitor_id": MONITOR_ID,
            "at": NOW - DAY,
        }
    ],
}
_INCIDENT = {
    "id": "inc_m2v6xq4zk7wd3nb5rythp2cfea",
    "monitor_id": MONITOR_ID,
    "project_id": PROJECT_ID,
    "title": "Shop",
    "status": "open",
    "reason_code": "http_failure",
    "detail": _UNAVAILABLE,
    "started_at": NOW - 180_000,
    "confirmed_at": NOW - 60_000,
    "acknowledged_at": None,
    "resolved_at": None,
    "resolution": None,
}
_EVENTS: list[dict[str, Any]] = [
    {
        "id": "evt_w4kq7bz2xk6wd5nmrv3hcp2fea",
        "type": "first_failure",
        "at": NOW - 180_000,
        "text": "The first check failed.",
        "data": {},
    },
    {
        "id": "evt_z6mq7bz2xk4wd6nmrv3hcp2fea",
        "type": "acknowledged",
        "at": NOW,
        "text": "Acknowledged by sam@shop.example.",
        "data": {"by": "sam@shop.example"},
    },
]
_COMMENT = {
    "id": "evt_q3tq7bz2xk4wd6nmrv3hcp2fea",
    "type": "commented",
    "at": NOW,
    "text": "The provider works on it.",
    "data": {"by": "sam@shop.example"},
}
_WHOLE_INCIDENT = _INCIDENT | {"evidence": _EVIDENCE, "events": _EVENTS[:1]}
_DECLARED = _INCIDENT | {
    "id": "inc_d7v6xq4zk2wd3nb5rythp2cfea",
    "monitor_id": None,
    "title": "Orders arrive late",
    "reason_code": None,
    "detail": "The queue of the shop is behind by an hour.",
    "started_at": NOW,
    "confirmed_at": None,
    "evidence": None,
    "events": [
        {
            "id": "evt_k2vq7bz2xk4wd6nmrv3hcp2fea",
            "type": "declared",
            "at": NOW,
            "text": "The queue of the shop is behind by an hour.",
            "data": {"by": "sam@shop.example"},
        }
    ],
}
_WINDOW_INPUT = {
    "project_id": PROJECT_ID,
    "name": "Sunday updates",
    "starts_at": NOW - 37_800_000,  # 02:30 in Berlin
    "ends_at": NOW - 34_200_000,
    "time_zone": "Europe/Berlin",
    "rrule": "FREQ=WEEKLY;BYDAY=SU;UNTIL=20271231T235959Z",
    "monitors": "chosen",
    "monitor_ids": [MONITOR_ID],
}
_WINDOW = _WINDOW_INPUT | {
    "id": "mwn_t4n7zx2kq5wd3mrv6ythp2cfea",
    "active": False,
    "next_starts_at": NOW - 37_800_000 + 7 * DAY,
    "next_ends_at": NOW - 34_200_000 + 7 * DAY,
    "created_at": NOW - DAY,
}
_PAGE_INPUT: dict[str, Any] = {
    "project_id": PROJECT_ID,
    "name": "Shop status",
    "slug": "shop",
    "description": "How the shop and its services are.",
    "theme": "auto",
    "accent": "#5b6ee1",
    "groups": [{"name": "Shop", "monitors": [{"monitor_id": MONITOR_ID, "name": "Website"}]}],
}
_PAGE = _PAGE_INPUT | {
    "id": "stp_q4n7zx2kd5wb3mrv6ythp2cfea",
    "url": "https://pulsekeeper.example/status/shop",
    "published": True,
    "protected": False,
    "custom_domain": None,
    "show_window_names": False,
    "has_logo": False,
    "created_at": NOW,
}
_UPDATE = {"status": "identified", "text": "The database was out of space; we are adding some."}
_NOTE_INPUT = _UPDATE | {"title": "Orders are late"}
_NOTE = {
    "id": "stn_w2b7zx5kq4nd3mrv6ythp2cfea",
    "title": "Orders are late",
    "incident_id": None,
    "created_at": NOW,
    "resolved_at": None,
    "updates": [_UPDATE | {"id": "stu_m4n7zx2kq5wd3brv6ythp2cfea", "at": NOW}],
}
_BADGE = {
    "key": "bdg_c4n7zx2kq5wd3mrv6ythp2bfea",
    "urls": {
        name: f"https://pulsekeeper.example/badge/bdg_c4n7zx2kq5wd3mrv6ythp2bfea/{name}.svg"
        for name in ("status", "uptime-24h", "uptime-7d", "uptime-30d", "uptime-90d", "latency")
    },
}
_OK = {"ok": True}

_CONNECTOR = {
    "provider": "vercel",
    "created_at": NOW - DAY,
    "meta": "Shop Ltd",
    "reconnect_required": False,
}
_IMPORTED = _MONITOR | {
    "name": "shop-web",
    "url": "https://www.shop.example",
    "method": "HEAD",
    "check_ssl": False,
    "cert_expires_at": None,
    "content_rules": [],
    "request_headers": [],
    "status": None,
    "status_since": None,
    "last_latency_ms": None,
    "last_connect_ms": None,
    "last_ttfb_ms": None,
    "uptime_24h": None,
    "avg_latency_24h": None,
    "last_checked_at": None,
}

REQUESTS: dict[str, Any] = {
    "create_monitor": _MONITOR_INPUT,
    "test_monitor": {"url": "https://shop.example/health", "timeout_ms": 5000},
    "update_monitor": {"interval_sec": 300, "enabled": False},
    "mute_monitor": {"minutes": 30},
    "declare_incident": {
        "project_id": PROJECT_ID,
        "title": "Orders arrive late",
        "text": "The queue of the shop is behind by an hour.",
    },
    "comment_incident": {"text": "The provider works on it."},
    "create_maintenance_window": _WINDOW_INPUT,
    "update_maintenance_window": {"name": "Updates on Sundays"},
    "create_status_page": _PAGE_INPUT,
    "update_status_page": {"description": "How the shop is."},
    "set_status_page_logo": {"image": "iVBORw0KGgoAAAANSUhEUg=="},
    "write_status_page_note": _NOTE_INPUT,
    "update_status_page_note": _UPDATE,
    "import_connector_projects": {
        "external_refs": ["prj_QmXy5kV2", "prj_Rn81bTz7", "prj_gone"],
        "project_id": PROJECT_ID,
    },
    "create_project": {"name": "Shop"},
    "rename_project": {"name": "Web shop"},
    "create_alert_channel": {
        "kind": "webhook",
        "name": "On call",
        "url": "https://hooks.shop.example/T03/B51?key=s3cret",
        "monitors": "chosen",
        "monitor_ids": [MONITOR_ID],
        "remind_every_hours": 4,
        "project_id": PROJECT_ID,
    },
    "update_alert_channel": {"topics": ["down", "recovered"], "enabled": False},
    "create_token": {"project_id": PROJECT_ID, "name": "CI", "ttl_seconds": 86400},
    "create_session": {"email": "sam@shop.example", "password": "correct horse battery staple"},
    "add_member": {"email": "sam@shop.example", "role": "member"},
    "change_member_role": {"role": "admin"},
    "update_account": {"current_password": "correct horse", "password": "battery staple, correct horse"},
    "delete_account": {"password": "correct horse battery staple"},
}

_ENTRY = {
    "id": "aud_h4nd5yq7zxk2v4mb6rthc2pfea",
    "at": NOW,
    "action": "member.updated",
    "actor_type": "user",
    "actor_id": "usr_w3nd5yq7zxk2v4mb6rthc2pfea",
    "actor_email": "sam@shop.example",
    "project_id": "prj_5yq7zxk2v4mb6rthc2pfea3nd4",
    "target_id": "mbr_2v4mb6rthc2pfea3nd45yq7zxk",
    "target_name": "kim@shop.example",
    "address": "192.0.2.7",
    "user_agent": "curl/8.9.1",
    "details": {"before": "member", "role": "admin"},
}

RESPONSES: dict[str, Any] = {
    "list_monitors": [_MONITOR],
    "create_monitor": _MONITOR,
    "get_monitor": _MONITOR,
    "update_monitor": _MONITOR | {"interval_sec": 300, "enabled": False},
    "delete_monitor": _OK,
    "mute_monitor": _MONITOR | {"muted_until": NOW + 1_800_000},
    "test_monitor": {
        "status": "down",
        "latency_ms": 95,
        "connect_ms": 22,
        "ttfb_ms": 93,
        "detail": _UNAVAILABLE,
        "http_status": 503,
    },
    "list_monitor_checks": [_CHECK, _FAILED_CHECK],
    "get_monitor_check": _FAILED_CHECK | {"evidence": _EVIDENCE},
    "check_monitor": _CHECK | {"evidence": None},
    "list_monitor_uptime": [
        {"date": "2026-02-28", "uptime": 99.58, "down_sec": 360, "incidents": 1, "avg_latency_ms": 188.02},
        {"date": "2026-03-01", "uptime": 100.0, "down_sec": 0, "incidents": 0, "avg_latency_ms": 190.4},
    ],
    "ping_heartbeat": _OK,
    "ping_heartbeat_by_get": _OK,
    "list_alert_channels": [_CHANNEL],
    "create_alert_channel": _CHANNEL | {"secret": "whs_k7w2…"},
    "get_alert_channel": _CHANNEL,
    "update_alert_channel": _CHANNEL | {"topics": ["down", "recovered"], "enabled": False},
    "delete_alert_channel": _OK,
    "test_alert_channel": {"delivered": True, "detail": "The receiver answered with status 200."},
    "list_alert_channel_deliveries": [_DELIVERY],
    "replay_delivery": _DELIVERY | {"state": "waiting", "next_try_at": NOW, "done_at": None},
    "list_incidents": [_INCIDENT],
    "get_incident": _WHOLE_INCIDENT,
    "acknowledge_incident": _WHOLE_INCIDENT | {"acknowledged_at": NOW, "events": _EVENTS},
    "comment_incident": _WHOLE_INCIDENT | {"events": [_EVENTS[0], _COMMENT]},
    "declare_incident": _DECLARED,
    "resolve_incident": _DECLARED | {"status": "resolved", "resolved_at": NOW, "resolution": "closed"},
    "list_maintenance_windows": [_WINDOW],
    "create_maintenance_window": _WINDOW,
    "get_maintenance_window": _WINDOW,
    "update_maintenance_window": _WINDOW | {"name": "Updates on Sundays"},
    "delete_maintenance_window": _OK,
    "list_status_pages": [_PAGE],
    "create_status_page": _PAGE,
    "get_status_page": _PAGE,
    "update_status_page": _PAGE | {"description": "How the shop is."},
    "delete_status_page": _OK,
    "set_status_page_logo": _PAGE | {"has_logo": True},
    "remove_status_page_logo": _OK,
    "list_status_page_notes": [_NOTE],
    "write_status_page_note": _NOTE,
    "get_status_page_note": _NOTE,
    "delete_status_page_note": _OK,
    "update_status_page_note": _NOTE,
    "list_status_page_subscribers": [
        {"id": "sub_n4b7zx2kq5wd3mrv6ythp2cfea", "hint": "a…@shop.example", "confirmed_at": NOW}
    ],
    "remove_status_page_subscriber": _OK,
    "get_monitor_badge": _BADGE,
    "give_monitor_badge": _BADGE,
    "take_monitor_badge": _OK,
    "list_connectors": [_CONNECTOR],
    "start_connector": {"authorize_url": "https://vercel.com/integrations/pulsekeeper/new?state=q4zt…"},
    "list_connector_projects": {
        "projects": [
            {
                "external_ref": "prj_QmXy5kV2",
                "name": "shop-web",
                "url": "https://www.shop.example",
                "already_imported": False,
            }
        ]
    },
    "import_connector_projects": {
        "created": [_IMPORTED],
        "skipped": ["prj_Rn81bTz7"],
        "failed": [{"external_ref": "prj_gone", "error": "not_found"}],
    },
    "disconnect_connector": _OK,
    "list_projects": [_PROJECT | {"monitors": 4, "up": 2, "slow": 1, "down": 0, "unknown": 1}],
    "create_project": _PROJECT,
    "rename_project": _OK,
    "delete_project": _OK,
    "list_members": [_MEMBER],
    "list_project_audit_log": [_ENTRY | {"address": None, "user_agent": None}],
    "list_account_audit_log": [_ENTRY],
    "add_member": _MEMBER,
    "change_member_role": _MEMBER | {"role": "admin"},
    "remove_member": _OK,
    "list_tokens": [_TOKEN],
    "create_token": _TOKEN | {"token": "svc_h4x2…"},
    "revoke_token": _OK,
    "create_session": {
        "token": "ses_p7kq…",
        "expires_at": NOW + 14 * DAY,
        "user": {"id": "usr_w3nd5yq7zxk2v4mb6rthc2pfea", "email": "sam@shop.example", "plan": "pro"},
    },
    "list_sessions": [
        {
            "id": "sin_q5nd5yq7zxk2v4mb6rthc2pfea",
            "created_at": NOW - DAY,
            "last_used_at": NOW,
            "expires_at": NOW + 13 * DAY,
            "current": True,
        }
    ],
    "delete_current_session": _OK,
    "delete_session": _OK,
    "get_account": _ACCOUNT,
    "update_account": _ACCOUNT,
    "delete_account": _OK,
    "export_account": {
        "format": 1,
        "exported_at": NOW,
        "not_included": {"credentials": "…"},
        "account": _ACCOUNT,
        "sessions": [],
        "complete": True,
    },
}

ERRORS: dict[str, dict[str, Any]] = {
    "400": {"error": "bad_request", "reason": "The request could not be understood."},
    "401": {"error": "unauthorized", "reason": "A valid Bearer token is needed."},
    "403": {
        "error": "session_required",
        "reason": "A project token may not do this; sign in and use a session token.",
    },
    "404": {"error": "not_found", "reason": "There is no such thing, or it is not yours."},
    "409": {"error": "conflict", "reason": "Another request under this key is still at work."},
    "413": {
        "error": "body_too_large",
        "reason": "The body is larger than any valid one.",
        "limit": 262144,
    },
    "415": {"error": "unsupported_media_type", "reason": "Send application/json."},
    "422": {"error": "validation_error", "reason": "limit: must be a whole number from 1 to 1000."},
    "429": {"error": "rate_limited", "reason": "Too many requests; wait before the next."},
    "502": {
        "error": "provider_error",
        "reason": "The provider did not answer as it should; try again in a moment.",
    },
    "503": {
        "error": "no_worker",
        "reason": "No worker ran the check in time; try again in a moment.",
    },
    "default": {
        "error": "internal_error",
        "reason": "Something broke on our side; it has been logged.",
    },
}

_MONITOR_LIMIT = {
    "error": "monitor_limit",
    "reason": "The plan's number of monitors is reached.",
    "limit": 50,
}
_RECONNECT_REQUIRED = {
    "error": "reconnect_required",
    "reason": "The provider does not accept the grant any more; link it again by oauth/start.",
}
OPERATION_ERRORS: dict[tuple[str, str], dict[str, Any]] = {
    ("start_connector", "503"): {
        "error": "provider_not_configured",
        "reason": "This deployment has no keys for the provider; its operator sets them.",
    },
    ("list_connector_projects", "409"): _RECONNECT_REQUIRED,
    ("import_connector_projects", "409"): _RECONNECT_REQUIRED,
    ("create_monitor", "403"): _MONITOR_LIMIT,
    ("update_monitor", "403"): _MONITOR_LIMIT,
    ("create_monitor", "422"): {
        "error": "validation_error",
        "reason": "url: is required for a monitor of type http.",
    },
    ("create_alert_channel", "403"): {
        "error": "channel_limit",
        "reason": "The number of alert channels of an account is reached.",
        "limit": 50,
    },
    ("create_alert_channel", "422"): {
        "error": "validation_error",
        "reason": "url: is a private or reserved address, to which Pulsekeeper sends nothing.",
    },
    ("test_alert_channel", "409"): {
        "error": "not_confirmed",
        "reason": "The owner of the e-mail address has not agreed yet; set the address again to send another request.",
    },
    ("test_alert_channel", "503"): {
        "error": "no_worker",
        "reason": "No worker sent the test in time; try again in a moment.",
    },
    ("replay_delivery", "409"): {
        "error": "not_dead",
        "reason": "Only a dead delivery can be replayed; this one was sent, or is still tried.",
    },
    ("create_maintenance_window", "403"): {
        "error": "window_limit",
        "reason": "The number of maintenance windows is reached; delete those that are over.",
        "limit": 100,
    },
    ("create_maintenance_window", "422"): {
        "error": "validation_error",
        "reason": "rrule: never ends; give UNTIL, at most 10 years after starts_at, or COUNT.",
    },
    ("create_status_page", "403"): {
        "error": "status_page_limit",
        "reason": "The number of status pages of an account is reached.",
        "limit": 50,
    },
    ("create_status_page", "422"): {
        "error": "validation_error",
        "reason": "slug: is taken by another status page.",
    },
    ("update_status_page_note", "409"): {
        "error": "note_resolved",
        "reason": "The note is resolved already; write another.",
    },
    ("acknowledge_incident", "409"): {
        "error": "incident_resolved",
        "reason": "The incident is resolved already.",
    },
    ("resolve_incident", "409"): {
        "error": "resolves_by_itself",
        "reason": "The incident of a monitor is resolved by its recovery, its pause or its deletion.",
    },
    ("create_session", "401"): {
        "error": "invalid_credentials",
        "reason": "The e-mail address and the password do not belong together.",
    },
    ("create_session", "403"): {
        "error": "email_unverified",
        "reason": "The e-mail address of this account is not confirmed yet; open the link that was sent to it.",
    },
    ("export_account", "403"): {
        "error": "reauthentication_required",
        "reason": "Sign in once more: this takes a session that was created within the last 5 minutes.",
    },
    ("delete_account", "409"): {
        "error": "projects_shared",
        "reason": "Other people are members of “Shop”; remove them, or delete the projects, first.",
    },
    ("create_token", "400"): {
        "error": "project_required",
        "reason": "project_id: name the project that the token is for.",
    },
}
