"""Examples of openapi.json, derived from the schemas: one sample value for each name, and whole request bodies.

A property gets the sample of `Component.property`, else that of its name, else its default, null, or a value of its
type. A test validates each example against its schema.
"""

from __future__ import annotations

from typing import Any

MONITOR_ID = "mon_7vxq2mzk4p3hd6ynbc5tw2era4"
PROJECT_ID = "prj_k3r5wq7zx2d4m6nbhy2ct3vpfe"
NOW = 1_772_366_400_000  # 2026-03-01 12:00:00 UTC
DAY = 86_400_000
_MANIFEST = {
    "version": 1,
    "projects": [{"name": "Shop"}],
    "monitors": [{"name": "Orders", "project": "Shop", "url": "https://shop.example/orders"}],
}
_RULE = {"type": "json_field", "path": "status", "equals": "ok"}
_CHANNEL_ID, _USER_ID = "chn_k3r5wq7zx2d4m6nbhy2ct3vpfe", "usr_w3nd5yq7zxk2v4mb6rthc2pfea"
_HOURS = {"days": [1, 2, 3, 4, 5], "from": "09:00", "to": "17:00"}
_LAYER = {"user_ids": [_USER_ID], "every": {"unit": "week", "count": 1}, "starts_at": NOW, "hours": [_HOURS]}
_OVERRIDE = {"user_id": _USER_ID, "starts_at": NOW, "ends_at": NOW + DAY}
_STEPS = [
    {"after_min": 0, "targets": [{"type": "schedule", "id": "ocs_k3r5wq7zx2d4m6nbhy2ct3vpfe"}]},
    {"after_min": 10, "targets": [{"type": "user", "id": _USER_ID}]},
]
_TEMPLATES = {"down": {"title": "{{ monitor.name }} is down", "body": "{{ detail }}\n{{ link }}"}}
_UPDATE = {"status": "identified", "text": "The database was out of space; we are adding some."}

SAMPLES: dict[str, Any] = {
    "Apply.manifest": _MANIFEST,
    "Apply.variables": {"PK_SHOP_TOKEN": "0123456789abcdef"},
    "Change.action": "create",
    "Change.kind": "monitor",
    "Change.name": "Orders",
    "Change.project": "Shop",
    "Change.path": "monitors[0]",
    "Change.fields": [],
    "ImportedItem.body": {"type": "http", "url": "https://shop.example/orders"},
    "ImportedItem.channels": ["1"],
    "ImportedItem.group": "Shop",
    "ImportedChannel.body": {"kind": "slack", "url": "https://hooks.slack.com/services/T0/B0/x"},
    "ImportedChannel.key": "1",
    "ImportedChannel.name": "On call",
    "Imported.project": "Shop",
    "accent": "#5b6ee1",
    "action": "member.updated",
    "actor_email": "sam@shop.example",
    "actor_id": "usr_w3nd5yq7zxk2v4mb6rthc2pfea",
    "address": "203.0.113.7:443",
    "at": NOW,
    "attempts": 21,
    "authorize_url": "https://vercel.com/integrations/pulsekeeper/new?state=q4zt…",
    "avg_latency_24h": 190.4,
    "avg_latency_ms": 188.02,
    "body": "<html><head><title>503 Service Temporarily Unavailable</title></head></html>",
    "ca_certificate": None,
    "checked_at": NOW,
    "confirmed_at": NOW,
    "connect_ms": 24,
    "created_at": NOW,
    "current": True,
    "date": "2026-03-01",
    "delivered": True,
    "description": "The shop and its services.",
    "detail": "Answered with status 503 (the service is unavailable) instead of 2xx or 3xx; "
    "check whether it is overloaded or under maintenance.",
    "email": "sam@shop.example",
    "enabled": True,
    "ends_at": NOW - 34_200_000,
    "expires_at": NOW + DAY,
    "external_ref": "prj_QmXy5kV2",
    "fail_threshold": 3,
    "get_metrics": "# HELP pulsekeeper_monitor_uptime_24h_ratio Share of the last 24 hours outside outages, 0 to 1.\n"
    "# TYPE pulsekeeper_monitor_uptime_24h_ratio gauge\n"
    f'pulsekeeper_monitor_uptime_24h_ratio{{id="{MONITOR_ID}",name="Orders",project="Shop",type="http"}} 0.9993\n',
    "grace_sec": 60,
    "hint": "https://hooks.shop.example",
    "http_status": 503,
    "incident_id": "inc_m2v6xq4zk7wd3nb5rythp2cfea",
    "incidents": 1,
    "interval_sec": 60,
    "key": "bdg_c4n7zx2kq5wd3mrv6ythp2bfea",
    "kind": "webhook",
    "last_checked_at": NOW,
    "last_connect_ms": 24,
    "last_error": "The receiver answered with status 503.",
    "last_latency_ms": 182,
    "last_ttfb_ms": 176,
    "last_used_at": NOW,
    "join_token": "join_u5rk…",
    "join_token_expires_at": NOW + 3_600_000,
    "last_seen_at": NOW,
    "latency_ms": 95,
    "location": "default",
    "locations": ["default"],
    "loss": None,
    "meta": "Shop Ltd",
    "method": "GET",
    "min_replies": 1,
    "missed": "skip",
    "min_interval_sec": 60,
    "monitor_id": MONITOR_ID,
    "monitor_ids": [MONITOR_ID],
    "monitor_limit": 1000,
    "name": "Shop",
    "next_ends_at": NOW - 34_200_000 + 7 * DAY,
    "next_starts_at": NOW - 37_800_000 + 7 * DAY,
    "next_try_at": NOW - 60_000,
    "ok": True,
    "packets": 3,
    "project_id": PROJECT_ID,
    "provider": "vercel",
    "published": True,
    "reason_code": "http_failure",
    "recover_threshold": 1,
    "request_body_encoding": "text",
    "remind_every_hours": 4,
    "role": "member",
    "rrule": "FREQ=WEEKLY;BYDAY=SU;UNTIL=20271231T235959Z",
    "schedule": None,
    "slow_ms": 1500,
    "slug": "shop",
    "started_at": NOW - 180_000,
    "starts_at": NOW - 37_800_000,  # 02:30 in Berlin
    "state": "dead",
    "status": "up",
    "status_line": "HTTP/1.1 503 Service Unavailable",
    "status_since": NOW - 3 * DAY,
    "tags": ["production", "web"],
    "target_id": "mem_y5tq7bz2xk4wd6nmrv3hcp2fea",
    "target_name": "kim@shop.example",
    "text": "The provider works on it.",
    "time_zone": "Europe/Berlin",
    "timeout_ms": 10_000,
    "times": [NOW + 3 * 3_600_000, NOW + 3 * 3_600_000 + DAY],
    "timezone": "UTC",
    "title": "Shop",
    "tls_issuer": "C = US, O = Let's Encrypt, CN = E7",
    "tls_verify": True,
    "tls_version": "TLSv1.3",
    "token": "ses_p7kq…",
    "topics": ["down", "recovered", "expiry", "reminder"],
    "ttfb_ms": 93,
    "uptime": 99.58,
    "uptime_24h": 99.93,
    "url": "https://shop.example/health",
    "user_agent": "curl/8.9.1",
    "version": "1.4.0",
    "AuditEntry.address": "192.0.2.7",
    "AuditEntry.details": {"before": "member", "role": "admin"},
    "Badge.urls": {
        name: f"https://pulsekeeper.example/badge/bdg_c4n7zx2kq5wd3mrv6ythp2bfea/{name}.svg"
        for name in ("status", "uptime-24h", "uptime-7d", "uptime-30d", "uptime-90d", "latency")
    },
    "Channel.monitors": "chosen",
    "ChannelTest.detail": "The receiver answered with status 200.",
    "Check.status": "down",
    "CheckDetail.status": "down",
    "CheckResult.status": "down",
    "DnsChange.added": ["192.0.2.2", "192.0.2.3"],
    "DnsChange.added_count": 2,
    "DnsChange.removed": ["192.0.2.1"],
    "DnsChange.removed_count": 1,
    "Evidence.headers": [{"name": "server", "value": "nginx"}, {"name": "retry-after", "value": "30"}],
    "Fact.name": "reply",
    "Fact.value": "512 bytes",
    "ListedProject.monitors": 4,
    "ListedProject.up": 2,
    "ListedProject.slow": 1,
    "ListedProject.unknown": 1,
    "Location.name": "Frankfurt",
    "Location.agents": 2,
    "Location.online": True,
    "Location.private": True,
    "LocationCreated.name": "Frankfurt",
    "LocationCreated.private": True,
    "LocationCreated.version": None,
    "LocationCreated.last_seen_at": None,
    "Agent.name": "probe-1",
    "HeaderOut.name": "Authorization",
    "HeaderOut.value_dropped": ...,  # omitted: present only if true
    "Incident.status": "open",
    "IncidentDetail.status": "open",
    "IncidentEvent.data": {"by": "sam@shop.example"},
    "IncidentEvent.type": "commented",
    "Member.expires_at": None,
    "Member.status": "active",
    "Monitor.content_rules": [_RULE],
    "Note.updates": [_UPDATE | {"id": "stu_m4n7zx2kq5wd3brv6ythp2cfea", "at": NOW}],
    "Note.title": "Orders are late",
    "Note.incident_id": None,
    "Ping.body": "pg_dump: error: connection to server at “db” failed",
    "Ping.duration_ms": 182_400,
    "Ping.exit_status": 1,
    "Ping.kind": "fail",
    "Ping.method": "POST",
    "Ping.remote_addr": "192.0.2.7",
    "Ping.rid": "0f8fad5b-d9cb-469f-a165-70867728950e",
    "Plan.name": "pro",
    "Redirect.status": 301,
    "SessionUser.plan": "pro",
    "StatusPage.url": "https://pulsekeeper.example/status/shop",
    "Subscriber.hint": "a…@shop.example",
    "Usage.monitors": 4,
    "TokenCreated.token": "svc_h4x2…",
    "Window.monitors": "chosen",
    "export_account": {
        "format": 1,
        "exported_at": NOW,
        "not_included": {"credentials": "…"},
        "account": {"id": "usr_w3nd5yq7zxk2v4mb6rthc2pfea", "email": "sam@shop.example"},
        "sessions": [],
        "complete": True,
    },
    # Realistic request bodies.
    "Join": {"token": "join_u5rk…", "name": "probe-1", "version": "1.4.0", "protocol": 1},
    "Joined.agent_id": "agt_b3x7qk2mwz5dnr4vty6hc3pfea",
    "Joined.credential": "agk_c7wq…",
    "Joined.location_id": "loc_q4zt7xk2wd5nmrv6yhc3bpfea2",
    "Joined.location_name": "Frankfurt",
    "LocationInput": {"name": "Frankfurt", "project_id": PROJECT_ID},
    "LocationPatch": {"name": "Frankfurt", "preselected": True},
    "AccountDeletion": {"password": "correct horse battery staple"},
    "AccountPatch": {"current_password": "correct horse", "password": "battery staple, correct horse"},
    "ChannelInput": {
        "kind": "webhook",
        "name": "On call",
        "url": "https://hooks.shop.example/T03/B51?key=s3cret",
        "monitors": "chosen",
        "monitor_ids": [MONITOR_ID],
        "remind_every_hours": 4,
        "delay_min": 10,
        "hours": [_HOURS],
        "timezone": "Europe/Berlin",
        "templates": _TEMPLATES,
        "project_id": PROJECT_ID,
    },
    "Channel.hours": [_HOURS],
    "Channel.templates": _TEMPLATES,
    "ChannelPatch": {"topics": ["down", "recovered"], "enabled": False},
    "ImportInput": {"external_refs": ["prj_QmXy5kV2", "prj_Rn81bTz7", "prj_gone"], "project_id": PROJECT_ID},
    "ImportResult.skipped": ["prj_Rn81bTz7"],
    "ImportResult.failed": [{"external_ref": "prj_gone", "error": "not_found"}],
    "IncidentInput": {
        "project_id": PROJECT_ID,
        "title": "Orders arrive late",
        "text": "The queue of the shop is behind by an hour.",
    },
    "LogoInput": {"image": "iVBORw0KGgoAAAANSUhEUg=="},
    "MemberPatch": {"role": "admin"},
    "MonitorInput": {
        "url": "https://shop.example/health",
        "name": "Shop",
        "method": "GET",
        "interval_sec": 60,
        "check_ssl": True,
        "content_rules": [_RULE],
        "request_headers": [{"name": "Authorization", "value": "Bearer s3cret", "type": "bearer"}],
        "project_id": PROJECT_ID,
    },
    "MonitorPatch": {"interval_sec": 300, "enabled": False},
    "Member.user_id": _USER_ID,
    "Mute": {"minutes": 30},
    "NoteInput": _UPDATE | {"title": "Orders are late"},
    "NoteUpdateInput": _UPDATE,
    "PageInput": {
        "project_id": PROJECT_ID,
        "name": "Shop status",
        "slug": "shop",
        "description": "The shop and its services.",
        "theme": "auto",
        "accent": "#5b6ee1",
        "groups": [{"name": "Shop", "monitors": [{"monitor_id": MONITOR_ID, "name": "Website"}]}],
    },
    "OnCallScheduleInput": {
        "name": "Backend",
        "project_id": PROJECT_ID,
        "timezone": "Europe/Berlin",
        "layers": [_LAYER],
        "overrides": [_OVERRIDE],
    },
    "OnCallSchedulePatch": {"overrides": [_OVERRIDE]},
    "OnCallSchedule.layers": [_LAYER],
    "OnCallSchedule.overrides": [_OVERRIDE],
    "Shift.ends_at": NOW + 7 * DAY,
    "Shift.layer": 0,
    "Shift.starts_at": NOW,
    "Shift.user_id": _USER_ID,
    "OnCallNow.next_at": NOW + 7 * DAY,
    "OnCallNow.next_user_id": "usr_b3x7qk2mwz5dnr4vty6hc3pfea",
    "OnCallNow.until": NOW + 7 * DAY,
    "OnCallNow.user_id": _USER_ID,
    "CalendarLink.url": "https://pulsekeeper.example/calendar/q4zt….ics",
    "EscalationPolicyInput": {"name": "Backend", "project_id": PROJECT_ID, "steps": _STEPS, "repeat": 2},
    "EscalationPolicyPatch": {"steps": _STEPS, "acknowledge_timeout_min": 60},
    "EscalationPolicy.steps": _STEPS,
    "Contact": {"rules": [{"after_min": 0, "channel_id": _CHANNEL_ID}]},
    "PagePatch": {"description": "The shop and its services."},
    "SessionInput": {"email": "sam@shop.example", "password": "correct horse battery staple"},
    "Tag.monitors": 12,
    "Tag.name": "production",
    "TokenInput": {"project_id": PROJECT_ID, "name": "CI", "ttl_seconds": 86_400},
    "WindowInput": {
        "project_id": PROJECT_ID,
        "name": "Sunday updates",
        "starts_at": NOW - 37_800_000,
        "ends_at": NOW - 34_200_000,
        "time_zone": "Europe/Berlin",
        "rrule": "FREQ=WEEKLY;BYDAY=SU;UNTIL=20271231T235959Z",
        "monitors": "chosen",
        "monitor_ids": [MONITOR_ID],
    },
    "WindowPatch": {"name": "Updates on Sundays"},
}
_IDS = {
    "AuditEntry": "aud",
    "Channel": "chn",
    "Check": "chk",
    "Delivery": "dlv",
    "Incident": "inc",
    "IncidentEvent": "evt",
    "Location": "loc",
    "LocationCreated": "loc",
    "Agent": "agt",
    "Member": "mem",
    "Monitor": "mon",
    "Note": "stn",
    "OnCallSchedule": "ocs",
    "EscalationPolicy": "esc",
    "Account": "usr",
    "Session": "sin",
    "SessionUser": "usr",
    "StatusPage": "stp",
    "Subscriber": "sub",
    "Token": "tok",
    "Window": "mwn",
}
_BY_TYPE: dict[str, Any] = {"boolean": False, "integer": 0, "number": 0, "string": "…", "object": {}}


_DECLARED: dict[str, Any] = {"monitor_id": None, "reason_code": None, "confirmed_at": None, "evidence": None}
_DECLARED |= {"title": "Orders arrive late", "detail": "The queue of the shop is behind by an hour."}
BY_OPERATION: dict[str, dict[str, Any]] = {
    "apply_manifest": {"applied": True, "created": 1, "first_checks": 1, "notes": []},
    "declare_incident": _DECLARED,
    "mute_monitor": {"muted_until": NOW + 1_800_000},
    "replay_delivery": {"state": "waiting", "next_try_at": NOW},
    "resolve_incident": _DECLARED | {"status": "resolved", "resolved_at": NOW, "resolution": "closed"},
}
"""Values that differ in the response of one operation."""


def example_of(schema: dict[str, Any], schemas: dict[str, Any], name: str = "") -> Any:
    """Return an example of a schema. `name` is `Component.property`; `schemas` are the components."""
    component, _, field = name.partition(".")
    for sample in (name, field):
        if sample in SAMPLES:
            return SAMPLES[sample]
    if field == "id":
        prefix = _IDS.get(component) or _IDS.get(component.removesuffix("Detail").removesuffix("Created"))
        return f"{prefix or 'prj'}_k3r5wq7zx2d4m6nbhy2ct3vpfe"
    if "default" in schema:
        return schema["default"]
    if "$ref" in schema:
        component = schema["$ref"].rsplit("/")[-1]
        return example_of(schemas[component], schemas, component)
    for inner in schema.get("oneOf", schema.get("allOf", ())):
        found = example_of(inner, schemas)
        return found if "allOf" in schema or isinstance(found, dict) else None
    if "enum" in schema:
        return schema["enum"][0]
    if "properties" in schema:
        found = {field: example_of(inner, schemas, f"{name}.{field}") for field, inner in schema["properties"].items()}
        return {field: value for field, value in found.items() if value is not ...}
    kind = schema.get("type", "object")
    if isinstance(kind, list):
        return None
    return [example_of(schema["items"], schemas)] if kind == "array" else _BY_TYPE[kind]
