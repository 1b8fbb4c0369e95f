"""What is kept of an account, section by section, as the API shows it where the API does.

An account's own are the rows that it owns: also those in projects that it owns, whoever made them. What lies in
projects of others is theirs; of it there are the place in the project, and what the person did and wrote there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.db.models import Q, QuerySet
from rest_framework.serializers import BaseSerializer

import alerts.selectors
import incidents.selectors
import monitors.selectors
import monitors.serializers
import projects.log
import statuspages.selectors
from accounts.models import SocialAccount, User
from accounts.services import addresses_of
from alerts.models import Delivery
from alerts.serializers import ChannelSerializer, DeliverySerializer
from connectors.models import Connector, Import
from connectors.serializers import ConnectorSerializer
from core.clock import to_ms
from incidents.models import IncidentEvent, MaintenanceWindow
from incidents.serializers import IncidentEventSerializer, IncidentSerializer, WindowSerializer
from monitors.models import DailyUptime, Monitor, StatusChange
from privacy.bites import bites, let_go
from projects.access import Caller
from projects.models import Membership, Role
from projects.serializers import AuditEntrySerializer, MemberSerializer
from statuspages.models import Badge, PageNote, Subscriber
from statuspages.serializers import (
    BadgeSerializer,
    NoteSerializer,
    StatusPageSerializer,
    SubscriberSerializer,
)
from tokens.models import ProjectToken, Session
from tokens.serializers import AccountSerializer, TokenSerializer

Rows = Iterable[Any]

NOT_INCLUDED = {
    "credentials": "Of passwords and tokens digests are kept, second factors are encrypted: none can be shown.",
    "secrets": "Values of request headers, addresses and secrets of alert channels, passwords of status pages and "
    "grants of connectors are encrypted or digested, and shown nowhere: a file with them would open what they open.",
    "checks": "Single checks and hourly roll-ups are many; GET /v1/monitors/<id>/checks tells them while they are "
    "kept. Here are each change of status and each day's uptime.",
    "subscribers": "Addresses of a status page's subscribers are those people's; here is what its owner sees.",
    "projects_of_others": "What lies in projects of others is theirs, but for what you did and wrote there.",
}


def account(user: User) -> Any:
    factors = Authenticator.objects.filter(user=user).order_by("pk")
    return AccountSerializer(user).data | {
        "created_at": to_ms(user.created_at),
        "last_sign_in_at": _ms(user.last_login),
        "has_password": user.has_usable_password(),
        "is_staff": user.is_staff,
        "addresses": list(EmailAddress.objects.filter(user=user).order_by("pk").values("email", "verified")),
        "former_addresses": addresses_of(user)[1:],
        "second_factors": [
            {"type": row.type, "created_at": to_ms(row.created_at), "last_used_at": _ms(row.last_used_at)}
            for row in factors
        ],
        "social_accounts": [
            {"provider": row.provider, "id": row.uid, "created_at": to_ms(row.created_at)}
            for row in SocialAccount.objects.filter(user=user).order_by("pk")
        ],
    }


def lists(user: User, *, now: datetime) -> dict[str, Callable[[], Rows]]:
    """Each list by its name; its rows are read when it is called, and as they are asked for."""
    caller = Caller(user)
    owned = monitors.selectors.list_monitors(caller).filter(owner=user)
    incidents_ = incidents.selectors.list_incidents(caller).filter(owner=user)
    channels = alerts.selectors.list_channels(caller).filter(owner=user)
    pages = statuspages.selectors.list_pages(caller).filter(owner=user)
    windows = MaintenanceWindow.objects.filter(owner=user).select_related("project")
    tokens = ProjectToken.objects.filter(created_by=user).select_related("project")
    own_projects = Membership.objects.filter(user=user, role=Role.OWNER).values("project")
    return {
        "sessions": lambda: _each(Session.objects.filter(user=user), _session),
        "browsers": lambda: _each(UserSession.objects.filter(user=user), _browser),
        "memberships": lambda: _each(_places(Q(user=user)), _membership),
        "members_of_own_projects": lambda: _each(
            _places(Q(project__in=own_projects)),
            lambda place: {"project_id": place.project.public_id, **MemberSerializer(place).data},
        ),
        "tokens": lambda: _shown(tokens, TokenSerializer),
        "monitors": lambda: _flat(map(monitors.serializers.shown, bites(owned))),
        "status_changes": lambda: _status_changes(owned),
        "days": lambda: _days(owned),
        "badges": lambda: _each(
            Badge.objects.filter(monitor__owner=user).select_related("monitor"),
            lambda badge: {"monitor_id": badge.monitor.public_id, **dict(BadgeSerializer(badge).data)},
        ),
        "alert_channels": lambda: _shown(channels, ChannelSerializer),
        "deliveries": lambda: _each(
            Delivery.objects.filter(channel__owner=user).select_related("channel").prefetch_related("items"),
            lambda sent: {"channel_id": sent.channel.public_id, **DeliverySerializer(sent).data},
        ),
        "maintenance_windows": lambda: _shown(
            windows.prefetch_related("monitors"), WindowSerializer, context={"now": now}
        ),
        "incidents": lambda: _each(
            incidents_.prefetch_related("events"),
            lambda incident: IncidentSerializer(incident).data | {"events": _events(incident.events.all())},
        ),
        "written_in_incidents_of_others": lambda: _each(
            IncidentEvent.objects.filter(data__by__in=addresses_of(user))
            .exclude(incident__owner=user)
            .select_related("incident"),
            lambda event: {"incident_id": event.incident.public_id, **_events([event])[0]},
        ),
        "status_pages": lambda: _shown(pages, StatusPageSerializer),
        "status_page_notes": lambda: _of_pages(
            PageNote.objects.filter(page__owner=user).select_related("incident").prefetch_related("updates"),
            NoteSerializer,
        ),
        "status_page_subscribers": lambda: _of_pages(
            Subscriber.objects.filter(page__owner=user), SubscriberSerializer
        ),
        "connectors": lambda: _shown(Connector.objects.filter(user=user), ConnectorSerializer),
        "imports": lambda: _each(Import.objects.filter(user=user).select_related("monitor"), _import),
        "audit_log": lambda: _flat(
            AuditEntrySerializer(projects.log.seen_by(user, rows), many=True).data
            for rows in bites(projects.log.of_account(caller))
        ),
    }


def _each(queryset: QuerySet[Any], shown: Callable[[Any], Any]) -> Rows:
    return _flat(([shown(row) for row in rows]) for rows in bites(queryset))


def _shown(
    queryset: QuerySet[Any], serializer: type[BaseSerializer[Any]], *, context: dict[str, Any] | None = None
) -> Rows:
    return _flat(serializer(rows, many=True, context=context or {}).data for rows in bites(queryset))


def _of_pages(queryset: QuerySet[Any], serializer: type[BaseSerializer[Any]]) -> Rows:
    return _each(
        queryset.select_related("page"),
        lambda row: {"status_page_id": row.page.public_id, **serializer(row).data},
    )


def _flat(several: Iterable[Iterable[Any]]) -> Iterator[Any]:
    for some in several:
        yield from some


def _places(whose: Q) -> QuerySet[Membership]:
    return Membership.objects.filter(whose).select_related("project", "user")


def _membership(place: Membership) -> Any:
    project = place.project
    return {
        "project_id": project.public_id,
        "project": project.name,
        "role": place.role,
        "since": to_ms(place.created_at),
    }


def _session(session: Session) -> Any:
    return {
        "id": session.public_id,
        "created_at": to_ms(session.created_at),
        "last_used_at": _ms(session.last_used_at),
        "expires_at": _ms(session.expires_at),
    }


def _browser(row: UserSession) -> Any:
    return {
        "address": row.ip,
        "user_agent": row.user_agent,
        "created_at": to_ms(row.created_at),
        "last_seen_at": to_ms(row.last_seen_at),
    }


def _import(row: Import) -> Any:
    return {"provider": row.provider, "external_ref": row.external_ref, "monitor_id": row.monitor.public_id}


def _events(events: Iterable[IncidentEvent]) -> Any:
    return IncidentEventSerializer(sorted(events, key=lambda event: event.pk), many=True).data


def _status_changes(owned: QuerySet[Monitor]) -> Rows:
    """One monitor after the other, by the index of its history: each bite of all at once would sort them all."""
    for some in bites(owned):
        for monitor in some:
            for changes in bites(StatusChange.objects.filter(monitor=monitor)):
                for change in changes:
                    yield {
                        "monitor_id": monitor.public_id,
                        "at": to_ms(change.at),
                        "kind": change.kind,
                        "before": change.before,
                        "after": change.after,
                        "reason_code": change.reason_code,
                        "detail": change.detail,
                    }


def _days(owned: QuerySet[Monitor]) -> Rows:
    for some in bites(owned):
        for start in range(0, len(some), 20):
            names = {monitor.pk: monitor.public_id for monitor in some[start : start + 20]}
            days = list(DailyUptime.objects.filter(monitor_id__in=names).order_by("monitor_id", "day"))
            let_go()
            for day in days:
                yield {
                    "monitor_id": names[day.monitor_id],
                    "date": day.day.isoformat(),
                    "observed_ms": day.observed_ms,
                    "down_ms": day.down_ms,
                    "outages": day.outages,
                }


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else to_ms(moment)
