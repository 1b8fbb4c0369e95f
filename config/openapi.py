"""The last touch on openapi.json: names, tags, headers and examples, joined to the operations by their ids.

Kept here and not beside the views, because it is one text that a reader sees as a whole, and upper floors may
know all operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from django.conf import settings

from alerts.events import EventType
from alerts.models import AlertChannel, Delivery, Topic
from alerts.transports import KINDS
from audit.actions import Action
from audit.models import Entry
from checks.probes.http.spec import RuleType
from checks.spec import ReasonCode, Verdict
from config.openapi_examples import ERRORS, OPERATION_ERRORS, REQUESTS, RESPONSES
from incidents.models import Incident, IncidentEvent
from incidents.windows import SCOPES
from monitors import configuration
from statuspages.models import NoteUpdate, StatusPage

# What `ENUM_NAME_OVERRIDES` of the settings points at: a name is found by exactly these values.
MONITOR_STATUSES = [verdict.value for verdict in Verdict]
MONITOR_TYPES = [kind.value for kind in configuration.MonitorType]
CREATABLE_TYPES = [kind.value for kind in configuration.CREATABLE_TYPES]
RULE_TYPES = [kind.value for kind in RuleType]
REASON_CODES = [code.value for code in ReasonCode]
HTTP_METHODS = list(configuration.METHODS)
HEADER_TYPES = list(configuration.HEADER_TYPES)
ROLES = ["owner", "admin", "member"]
GIVEN_ROLES = ["admin", "member"]
AUDIT_ACTIONS = [action.value for action in Action]
ACTOR_TYPES = Entry.ActorType.values
MEMBER_STATUSES = ["active", "invited"]
CHANNEL_KINDS = list(KINDS)
CHANNEL_SCOPES = AlertChannel.Scope.values
ALERT_TOPICS = Topic.values
ALERT_NEWS = [news.value for news in EventType]
DELIVERY_STATES = Delivery.State.values
INCIDENT_STATUSES = ["open", "resolved"]
RESOLUTIONS = Incident.Resolution.values
EVENT_TYPES = IncidentEvent.Type.values
WINDOW_SCOPES = list(SCOPES)
PAGE_THEMES = StatusPage.Theme.values
NOTE_STATUSES = NoteUpdate.Status.values

TAGS = {
    "monitors": ("Monitors", "What is checked, how, and how it stands."),
    "heartbeats": ("Heartbeats", "Pings of customers' jobs: public, the id is the secret."),
    "alert-channels": ("Alert channels", "Where alerts go, and what went there."),
    "incidents": ("Incidents", "What went wrong, and what happened about it."),
    "maintenance-windows": ("Maintenance windows", "When alerts are held back."),
    "status-pages": ("Status pages", "What the public may see, and what is told there."),
    "connectors": ("Connectors", "Accounts at other providers, whose projects become monitors."),
    "projects": ("Projects", "Groups of monitors, and the people who share them."),
    "tokens": ("Tokens", "Access tokens, each for one project."),
    "sessions": ("Sessions", "Signing in and out."),
    "account": ("Account", "The person who is signed in."),
}

DESCRIPTIONS = {
    "AuditEntry": "Something that was done and matters to security.",
    "Badge": "Where a monitor's badges are.",
    "Channel": "Where alerts go. Addresses and secrets are stored encrypted and never returned.",
    "ChannelInput": "An alert channel to create, with the settings of its kind: each description names its kinds.",
    "ChannelPatch": "The fields to change. Read-only fields of a channel are ignored.",
    "ChannelTest": "What came of a test.",
    "Check": "One check that was made.",
    "CheckDetail": "One check that was made, with what was seen of the target where it failed.",
    "CheckResult": "What one check of a draft found.",
    "Connector": "An account at a provider that somebody has linked. Its tokens are encrypted and never returned.",
    "ContentRule": "An assertion on the body. Text rules need `value`, json_field needs `path`.",
    "Delivery": "One message to one channel.",
    "DeliveryItem": "One piece of news in a message.",
    "Error": "Every error below /v1.",
    "Evidence": "What was seen of the target until the check failed.",
    "HeaderInput": "A header to send. Values are stored encrypted and never returned.",
    "HeaderOut": "A header that is sent; its value is never returned.",
    "ImportResult": "What came of an import, each list in the order of the request.",
    "ImportableProject": "A project of a provider's.",
    "Incident": "An outage of a monitor, or something that people declared.",
    "IncidentDetail": "An incident with its timeline and the evidence of the failing check.",
    "IncidentEvent": "One line of a timeline, in the order of what happened.",
    "IncidentInput": "An incident that no monitor found.",
    "Monitor": "A monitor as it is configured and as it stands.",
    "MonitorInput": "A monitor to create or to test.",
    "MonitorPatch": "The fields to change. Read-only fields of a Monitor are ignored.",
    "Note": "What is told of an incident on a status page.",
    "NoteInput": "A note to write, with its first update.",
    "NoteUpdate": "One update of a note.",
    "NoteUpdateInput": "An update to add to a note.",
    "PageGroup": "Monitors under a heading.",
    "PageGroupInput": "Monitors under a heading.",
    "PageInput": "A status page to create.",
    "PageMonitor": "A monitor on a page.",
    "PageMonitorInput": "A monitor to show.",
    "PagePatch": "The fields to change. Read-only fields of a page are ignored.",
    "Redirect": "A redirect that was followed.",
    "ResponseHeader": "A header of the response.",
    "Session": "Somebody who signed in to the API, for 14 days.",
    "StatusPage": "A page that shows how monitors stand. Its password is never returned.",
    "Subscriber": "Somebody who is told of a page's news by e-mail.",
    "Token": "A project token; its plaintext is shown at creation alone.",
    "UptimeDay": "One day of UTC.",
    "Window": "A maintenance window, and its occurrence that is on or comes next.",
    "WindowInput": "A maintenance window to create.",
    "WindowPatch": "The fields to change. Read-only fields of a window are ignored.",
}

_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "401": (
        "WWW-Authenticate",
        {
            "description": "The scheme to authenticate with.",
            "schema": {"type": "string"},
            "example": "Bearer",
        },
    ),
    "429": (
        "Retry-After",
        {
            "description": "Seconds until the next request may pass.",
            "schema": {"type": "integer", "minimum": 1},
            "example": 30,
        },
    ),
}
_LINK = {
    "description": 'The next page, as `<address>; rel="next"`; left out on the last one.',
    "schema": {"type": "string"},
    "example": '<https://pulsekeeper.example/v1/monitors?limit=100&cursor=MTA%3D>; rel="next"',
}


def finish(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:  # noqa: FBT001
    """Postprocessing hook of drf-spectacular."""
    schemas = result["components"]["schemas"]
    _write_null_in_place(result)
    schemas.pop("NullEnum", None)
    for name, text in DESCRIPTIONS.items():
        if name in schemas:
            schemas[name]["description"] = text
    enums = {frozenset(s["enum"]): name for name, s in schemas.items() if "enum" in s}
    used = set()
    for path, operation in operations(result):
        part = path.split("/")[2]
        tag = TAGS[part][0] if part in TAGS else part.title()
        used.add(tag)
        operation["tags"] = [tag]
        if operation.get("security") == [{}]:
            operation["security"] = []
        for parameter in operation.get("parameters", []):
            if parameter["name"] == "provider":
                parameter["schema"] = {"type": "string", "enum": list(settings.CONNECTORS)}
                parameter["description"] = "The name that this deployment has for a provider."
            named = enums.get(frozenset(parameter["schema"].get("enum", ())))
            if named is not None:
                parameter["schema"] = {"$ref": f"#/components/schemas/{named}"}
        _finish_answers(operation)
        _add_examples(operation)
    result["tags"] = [{"name": name, "description": text} for name, text in TAGS.values() if name in used]
    return result


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation


def _write_null_in_place(node: Any) -> None:
    """`null` beside an enum is drf-spectacular's NullEnum, which generated clients make an odd class of."""
    if isinstance(node, list):
        for index, inner in enumerate(node):
            if inner == {"$ref": "#/components/schemas/NullEnum"}:
                node[index] = {"type": "null"}
            else:
                _write_null_in_place(inner)
    elif isinstance(node, dict):
        for inner in node.values():
            _write_null_in_place(inner)


def _finish_answers(operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    paged = any(parameter["name"] == "cursor" for parameter in operation.get("parameters", []))
    for status, answer in answers.items():
        if not answer["description"]:
            answer["description"] = HTTPStatus(int(status)).phrase
        if status in _HEADERS:
            name, header = _HEADERS[status]
            answer.setdefault("headers", {})[name] = header
        if status == "200" and paged:
            answer.setdefault("headers", {})["Link"] = _LINK
    operation["responses"] = dict(sorted(answers.items()))


def _add_examples(operation: dict[str, Any]) -> None:
    name = operation["operationId"]
    for media in operation.get("requestBody", {}).get("content", {}).values():
        if name in REQUESTS:
            media["example"] = REQUESTS[name]
    for status, answer in operation["responses"].items():
        for media in answer.get("content", {}).values():
            if status.startswith("2"):
                if name in RESPONSES:
                    media["example"] = RESPONSES[name]
            else:
                media["example"] = OPERATION_ERRORS.get((name, status), ERRORS[status])
