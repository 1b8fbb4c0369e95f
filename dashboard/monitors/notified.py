"""Recipients of alerts in the form of a monitor: the selected channels, and a sentence about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from django.http import HttpResponse

from alerts import selectors
from alerts.events import Topic
from alerts.models import AlertChannel
from core.db import get_or_not_found
from core.errors import NotFound
from dashboard.channels import ChannelView
from dashboard.forms import separated
from dashboard.on_call.choosing import is_visible
from dashboard.pages import PageRequest, read_only, render_page
from monitors import types
from monitors.models import Monitor
from monitors.selectors import get_monitor
from monitors.types.base import MonitorType
from monitors.types.tags import tag_key
from oncall.models import EscalationPolicy
from projects import access
from projects.access import Caller
from projects.models import Project
from projects.placement import POLICY

Scope = AlertChannel.Scope
_WHEN: Mapping[Topic, str] = {
    Topic.DOWN: "it goes down",
    Topic.RECOVERED: "it recovers",
    Topic.REMINDER: "it stays down",
    Topic.SLOW: "it is slow",
    Topic.EXPIRY: "its certificate or domain expires soon",
    Topic.DNS_CHANGE: "its DNS records change",
    Topic.TOO_OFTEN: "it runs too often",
    Topic.PARTIAL_OUTAGE: "it fails from some of its locations",
}


ESCALATED_TOPICS = (Topic.DOWN, Topic.RECOVERED)
"""What an escalation policy sends in place of channels."""


class Row(NamedTuple):
    """A channel that covers the monitor by its scope (`is_fixed`) or by a tag, or that may choose it."""

    channel: AlertChannel
    is_checked: bool
    is_fixed: bool
    by_tag: bool

    @property
    def problem(self) -> str:
        """Return why the channel sends nothing, or an empty text."""
        state, text = ChannelView(self.channel).state
        return "" if state in ("sent", "dead") else text


@dataclass(frozen=True, slots=True)
class Notified:
    rows: Sequence[Row]
    topics: Collection[str]
    """Topics of monitors of the type, without those of `policy`."""
    policy: str = ""
    """The name of the escalation policy that applies, or how it is called if it is not visible."""

    @property
    def sentence(self) -> str:
        """Return who is notified of what. Channels with the same topics share a clause."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for row in self.rows:
            if (row.is_checked or row.by_tag) and not row.problem:
                wanted = tuple(
                    text for topic, text in _WHEN.items() if topic in row.channel.topics and topic in self.topics
                )
                groups.setdefault(wanted, []).append(row.channel.name)
        clauses = [
            f"{_joined(names, 'and')} {'is' if len(names) == 1 else 'are'} notified when {_joined(wanted, 'or')}"
            for wanted, names in groups.items()
            if wanted
        ]
        if self.policy:
            when = _joined([_WHEN[topic] for topic in ESCALATED_TOPICS], "or")
            clauses.insert(0, f"{self.policy} decides who is notified when {when}")
        return f"{'; '.join(clauses) or 'Nobody is notified'}."


def notified(
    caller: Caller,
    *,
    kind: MonitorType,
    project_id: str | None,
    chosen: Collection[str],
    tags: Collection[str],
    policy_id: str | None,
    owner_id: int,
) -> Notified:
    """Return the channels for a monitor of that type and project, of the account `owner_id` if it has no project.

    `policy_id` is the escalation policy that is selected: without one, that of the project applies.
    """
    keys = set(map(tag_key, tags))
    project, owner_id = selected_place(caller, project_id, owner_id=owner_id)
    rows = []
    # Do not load the selected monitors of each channel.
    for channel in selectors.list_channels(caller).prefetch_related(None).order_by("name", "pk"):
        is_fixed = _covers(channel, project, owner_id)
        may_choose = channel.scope == Scope.CHOSEN and channel.project in (None, project)
        if is_fixed or may_choose:
            by_tag = not keys.isdisjoint(channel.monitor_tag_keys) and _is_of(channel, project, owner_id)
            rows.append(Row(channel, is_fixed or channel.public_id in chosen, is_fixed, by_tag))
    policy = _policy(caller, policy_id, project, owner_id)
    return Notified(rows, _topics(kind) - (set(ESCALATED_TOPICS) if policy else set()), policy)


def _policy(caller: Caller, policy_id: str | None, project: Project | None, owner_id: int) -> str:
    """Return what the sentence calls the escalation policy that applies, or an empty text."""
    chosen = EscalationPolicy.objects.filter(public_id=policy_id).first() if policy_id else None
    of_project = None if project is None else project.escalation_policy
    policy = next((one for one in (chosen, of_project) if one is not None and _is_of(one, project, owner_id)), None)
    if policy is None:
        return ""
    return (
        f"The escalation policy “{policy.name}”" if is_visible(caller, policy) else "An escalation policy of the owner"
    )


def selected_place(caller: Caller, project_id: str | None, *, owner_id: int) -> tuple[Project | None, int]:
    """Return the project, and the key of the account that owns a monitor there. `owner_id`: without a project.

    A project in which the caller is a viewer counts as none: the caller cannot have a monitor there.
    """
    if project_id:
        with suppress(NotFound):
            project = get_or_not_found(access.accessible_projects(caller, roles=access.WRITERS), public_id=project_id)
            return project, access.owner_of(project).pk
    return None, owner_id


def chosen_by(caller: Caller, monitor: Monitor) -> list[str]:
    """Return the ids of the channels with chosen monitors that choose this one, and that the caller may change."""
    channels = selectors.list_channels(caller).exclude(project__in=caller.viewed)
    channels = channels.filter(scope=Scope.CHOSEN, pk__in=monitor.alert_channels.values("pk"))
    return sorted(channels.values_list("public_id", flat=True))


def _covers(channel: AlertChannel, project: Project | None, owner_id: int) -> bool:
    """Return whether the channel covers all monitors of the project, or of the owner, as `alerts.selectors` routes."""
    if channel.scope == Scope.PROJECT:
        return project is not None and channel.scope_project == project
    return channel.scope == Scope.ALL and _is_of(channel, project, owner_id)


def _is_of(row: AlertChannel | EscalationPolicy, project: Project | None, owner_id: int) -> bool:
    """Return whether the row is of the same project, or a personal one of the same owner."""
    return row.owner_id == owner_id if row.project_id is None else row.project_id == (project and project.pk)


def _topics(kind: MonitorType) -> set[str]:
    """Return the topics that alerts of this type can have."""
    uses = {
        Topic.SLOW: "slow_ms" in kind.asked,
        Topic.EXPIRY: not kind.asked.keys().isdisjoint({"check_ssl", "check_domain"}),
        Topic.DNS_CHANGE: kind.notes_changes,
        Topic.TOO_OFTEN: "max_pings_per_hour" in kind.asked,
        Topic.PARTIAL_OUTAGE: kind.polls,
        **dict.fromkeys((Topic.LOCATION_OFFLINE, Topic.ON_CALL_GAP, Topic.ON_CALL), False),
    }
    return {topic for topic in Topic if uses.get(topic, True)}


def _joined(texts: Sequence[str], word: str) -> str:
    """Return `a`, `a or b`, or `a, b, or c`."""
    if len(texts) < 3:
        return f" {word} ".join(texts)
    return f"{', '.join(texts[:-1])}, {word} {texts[-1]}"


@read_only
def preview(request: PageRequest) -> HttpResponse:
    """Show the channels and the sentence for what is selected in the form."""
    given, caller = request.GET, request.caller
    monitor = get_monitor(caller, given["monitor"]) if "monitor" in given else None
    name = given.get("type", "")
    found = notified(
        caller,
        kind=types.get(name if name in types.names() else types.DEFAULT),
        project_id=given.get("project_id"),
        chosen=given.getlist("channels"),
        tags=separated(given.get("tags", "")),
        policy_id=given.get(POLICY),
        owner_id=caller.user.pk if monitor is None else monitor.owner_id,
    )
    return render_page(request, "monitors/channels", notified=found, monitor=monitor)
