"""openapi.json: names, tags, headers and examples as the last step of generating it, and its bytes for all readers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from alerts.events import EventType, Topic
from alerts.models import AlertChannel, Delivery
from alerts.transports import KINDS
from audit.actions import Action
from audit.models import Entry
from checks.spec import ReasonCode, RuleType, Verdict
from config.openapi_examples import BY_OPERATION, example_of
from core.forks import in_fork
from core.packed import Packed, pack, respond
from incidents.backtest import UNANSWERED
from incidents.models import Incident, IncidentEvent
from incidents.serializers import INCIDENT_STATUSES
from incidents.windows import SCOPES
from monitors import types
from monitors.models import Ping
from monitors.types import content, http
from oncall.services import MOST_OF_UNIT, TARGET_TYPES
from projects.models import Role
from projects.serializers import GIVEN_ROLES, MEMBER_STATUSES
from pulsekeeper.importers.mapped import Outcome
from pulsekeeper.manifest.changes import ACTIONS
from statuspages.models import NoteUpdate, StatusPage
from tokens.models import ProjectToken

ENUMS: dict[str, Iterable[Any]] = {
    "MonitorStatus": Verdict,
    "MonitorType": types.names(),
    "HttpMethod": http.METHODS,
    "HeaderType": http.HEADER_TYPES,
    "BodyEncoding": content.ENCODINGS,
    "MissedRuns": http.MISSED,
    "RuleType": RuleType,
    "ReasonCode": ReasonCode,
    "SignalKind": Ping.Kind,
    "MemberRole": Role,
    "GivenRole": GIVEN_ROLES,
    "AuditAction": Action,
    "ActorType": Entry.ActorType,
    "MemberStatus": MEMBER_STATUSES,
    "TokenAccess": ProjectToken.Access,
    "ChannelKind": KINDS,
    "ChannelScope": AlertChannel.Scope,
    "OutsideHours": AlertChannel.Outside,
    "AlertTopic": Topic,
    "AlertNews": EventType,
    "DeliveryState": Delivery.State,
    "IncidentStatus": INCIDENT_STATUSES,
    "IncidentResolution": Incident.Resolution,
    "IncidentEventType": IncidentEvent.Type,
    "BacktestLimit": UNANSWERED,
    "WindowScope": SCOPES,
    "TurnUnit": MOST_OF_UNIT,
    "EscalationTargetType": TARGET_TYPES,
    "PageTheme": StatusPage.Theme,
    "NoteStatus": NoteUpdate.Status,
    "ManifestAction": ACTIONS,
    "ImportOutcome": Outcome,
}
"""Definitions whose values get a separate schema, by the schema's name."""


def enum_values() -> dict[str, list[str]]:
    """Return `ENUM_NAME_OVERRIDES` for drf-spectacular, which finds a schema's name by its values."""
    return {name: [getattr(value, "value", value) for value in values] for name, values in ENUMS.items()}


TAGS = {
    "monitors": ("Monitors", "Monitors: targets, settings, status and history."),
    "tags": ("Tags", "Labels of monitors."),
    "metrics": ("Metrics", "Metrics of monitors for Prometheus."),
    "heartbeats": ("Heartbeats", "Pings of customers' jobs: public, the id is the secret."),
    "schedule-preview": ("Schedules", "Cron schedules of heartbeats and schedulers."),
    "alert-channels": ("Alert channels", "Destinations of alerts, and their deliveries."),
    "incidents": ("Incidents", "Outages and their timelines."),
    "maintenance-windows": ("Maintenance windows", "Times in which alerts are suppressed."),
    "on-call-schedules": ("On-call schedules", "Who is on call when."),
    "escalation-policies": ("Escalation policies", "Whom an outage notifies, and when."),
    "status-pages": ("Status pages", "Public status pages, their notes and subscribers."),
    "manifest": ("Manifests", "The account as configuration."),
    "imports": ("Imports", "Import from other products."),
    "locations": ("Locations", "Places that checks run from, and their agents."),
    "agent": ("Agents", "What agents of locations send."),
    "connectors": ("Connectors", "Accounts at other providers, whose projects become monitors."),
    "projects": ("Projects", "Groups of monitors, and the people who share them."),
    "tokens": ("Tokens", "Access tokens, each for one project."),
    "sessions": ("Sessions", "Signing in and out."),
    "account": ("Account", "The signed-in user."),
}

_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "401": (
        "WWW-Authenticate",
        {"description": "The scheme to authenticate with.", "schema": {"type": "string"}, "example": "Bearer"},
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
    """Complete the document, as a postprocessing hook of drf-spectacular."""
    schemas = result["components"]["schemas"]
    _write_null_in_place(result)
    schemas.pop("NullEnum", None)
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
                parameter["description"] = "The provider's name in this deployment."
            named = enums.get(frozenset(parameter["schema"].get("enum", ())))
            if named is not None:
                parameter["schema"] = {"$ref": f"#/components/schemas/{named}"}
        _finish_answers(operation)
        _add_examples(operation, schemas)
    result["tags"] = [{"name": name, "description": text} for name, text in TAGS.values() if name in used]
    return result


@cache
def document() -> Packed:
    """Return the document of this process."""
    return pack(_prepared or _generate(), "application/vnd.oai.openapi+json")


_prepared: bytes | None = None


def prepare() -> None:
    """Generate the document in a fork of this process: it takes 0.3 s of CPU, and 6 MiB that are never used again.

    `config.rsgi` calls this before the process has threads of its own.
    """
    global _prepared
    _prepared = in_fork(_generate)
    document()


def _generate() -> bytes:
    # Imported here, in the fork: it loads Django's test client and unittest, 5 MiB.
    from drf_spectacular.generators import SchemaGenerator

    generated = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]
    return json.dumps(generated, ensure_ascii=False, separators=(",", ":")).encode()


@require_safe
def serve_document(request: HttpRequest) -> HttpResponse:
    return respond(request, document())


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation


def _write_null_in_place(node: Any) -> None:
    """Replace drf-spectacular's NullEnum by the type null: generated clients would have a useless class for it."""
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


def _add_examples(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Add examples. Errors already have them. The response to a request repeats the values of its body."""
    sent: dict[str, Any] = {}
    for media in operation.get("requestBody", {}).get("content", {}).values():
        sent = media["example"] = example_of(media["schema"], schemas)
    for answer in operation["responses"].values():
        for media in answer.get("content", {}).values():
            if "example" not in media:
                found = example_of(media["schema"], schemas, operation["operationId"])
                if isinstance(found, dict):
                    repeated = {
                        name: value
                        for name, value in sent.items()
                        if name in found and not isinstance(value, dict | list)
                    }
                    found = found | repeated | BY_OPERATION.get(operation["operationId"], {})
                media["example"] = found
