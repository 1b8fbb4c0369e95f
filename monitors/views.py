"""Monitors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from rest_framework.response import Response

from checks.spec import Verdict
from core.api.idempotency import Created, create_once
from core.api.query import ChoiceParam, IdParam, IntParam, ListParam, Pages, Param, TextParam, TimeParam
from core.api.viewsets import ETAG, ServiceViewSet, operation
from core.clock import utc_now
from core.errors import IdempotencyKeySpent, MonitorLimit, NotFound, NoWorker, ValidationFailed
from core.etags import etag
from core.throttles import ManifestThrottle, ProbeThrottle
from core.waiting import limit_waiting
from monitors import operations, selectors, services, types
from monitors.bulk_edits import Change, Outcome, chosen, editing, plan, run
from monitors.checking import interactive
from monitors.filters import MARKS, NO_PROJECT, STANDINGS, STATES, Filters, Tag, tags_of
from monitors.models import Monitor
from monitors.serializers import (
    BulkChangeSerializer,
    CheckResultSerializer,
    MonitorInputSerializer,
    MonitorPatchSerializer,
    MonitorSerializer,
    MuteSerializer,
    SchedulePreviewSerializer,
    TagSerializer,
    serialize_monitors,
)
from monitors.types.schedule import UTC, parse_schedule
from monitors.types.settings import MAX_URL
from monitors.types.tags import MAX_TAGS, normalized
from projects import access

MAX_PREVIEW, USUAL_PREVIEW = 50, 5
LAST_PREVIEW_MS = 7_289_654_399_999  # the end of the year 2200
_STATUSES = [verdict.value for verdict in Verdict]


@dataclass(frozen=True, slots=True)
class TagParam(Param):
    def parse(self, text: str) -> str:
        tag, problem = normalized(text)
        if problem:
            raise ValidationFailed(problem, field=self.name)
        return tag

    @property
    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}


FILTERS = (
    ListParam(
        "tag",
        "Only monitors with this tag, compared without case. May repeat: monitors that have all of them.",
        TagParam("tag", ""),
        MAX_TAGS,
    ),
    TextParam("q", "Only monitors whose name or address contains this text, compared without case.", MAX_URL),
    ListParam(
        "status",
        "Only monitors with this status. May repeat: any of them.",
        ChoiceParam("status", "", _STATUSES),
    ),
    ListParam(
        "type",
        "Only monitors of this type. May repeat: any of them.",
        ChoiceParam("type", "", types.names()),
    ),
    ListParam(
        "state",
        "Only monitors in this state, as the dashboard shows it. May repeat: any of them. Each monitor has one of "
        f"{', '.join(STANDINGS)}, and may have any of {', '.join(MARKS)}. A monitor that is paused or stale has a "
        "`status` too: that of its last check.",
        ChoiceParam("state", "", list(STATES)),
    ),
    IdParam("project_id", f"Only monitors of this project; `{NO_PROJECT}`: only those without a project."),
    IdParam("depends_on", "Only monitors that depend on the monitor with this id, directly."),
    ChoiceParam("enabled", "true: only monitors that are not paused; false: only paused ones.", ["true", "false"]),
)
"""Query parameters that narrow a list of monitors."""


def read_filters(params: Mapping[str, Any]) -> Filters:
    """Return the filters of the query parameters FILTERS."""
    enabled = params["enabled"]
    return Filters(
        tags=params["tag"],
        text=params["q"] or "",
        statuses=params["status"],
        types=params["type"],
        states=params["state"],
        project=params["project_id"] or "",
        depends_on=params["depends_on"] or "",
        enabled=None if enabled is None else enabled == "true",
    )


class SchedulePreviewViewSet(ServiceViewSet):
    noun = "schedule_preview"
    is_singleton = True
    serializer_class = SchedulePreviewSerializer

    @operation(
        params=(
            Param("schedule", "A cron expression of five fields. Required."),
            Param("timezone", f"An IANA time zone. Default: {UTC}."),
            TimeParam(
                "from", "Epoch milliseconds, 1970 to 2200; the times are after it. Default: now.", LAST_PREVIEW_MS
            ),
            IntParam("count", "Number of times.", 1, MAX_PREVIEW, USUAL_PREVIEW),
        )
    )
    def retrieve(self, *, schedule: str | None, timezone: str | None, count: int, **params: Any) -> dict[str, Any]:
        """List the next times of a schedule.

        Refuses what a monitor would refuse: see `schedule` and `timezone` of a monitor.
        """
        if schedule is None:
            raise ValidationFailed("is required.", field="schedule")
        parsed = parse_schedule(
            schedule, UTC if timezone is None else timezone, floor_sec=self.caller.user.plan.min_interval_sec
        )
        return {"times": parsed.upcoming(params["from"] or self.now, count)}


class TagViewSet(ServiceViewSet):
    noun = "tag"
    serializer_class = TagSerializer

    @operation(pages=None)
    def list(self) -> list[Tag]:
        """List the tags of monitors.

        By name, without case. The monitors are those of GET /v1/monitors. Names that differ in case only are one tag,
        spelled as on its newest monitor.
        """
        return tags_of(selectors.list_monitors(self.caller))


class MonitorViewSet(ServiceViewSet):
    noun = "monitor"
    lookup_url_kwarg = "monitor_id"
    serializer_class = MonitorSerializer
    has_etag = True

    def get_object(self, monitor_id: str) -> Monitor:
        return selectors.get_monitor(self.caller, monitor_id)

    def serialize(self, rows: Sequence[Any], serializer: Any = None) -> list[Any]:
        return serialize_monitors(rows, caller=self.caller)

    @operation(pages=Pages(weight=selectors.STORED_BYTES, few=30), params=FILTERS)
    def list(self, **params: Any) -> QuerySet[Monitor]:
        """List monitors.

        With several filters, only monitors that match all of them.
        """
        return read_filters(params).narrow(selectors.list_monitors(self.caller), now=self.now).defer("header_values")

    @operation(
        id="update_monitors",
        body=MonitorPatchSerializer,
        answer=BulkChangeSerializer,
        throttles=(ManifestThrottle,),
        params=(
            *FILTERS,
            ChoiceParam("dry_run", "true: change nothing, and return what would change.", ["true", "false"]),
        ),
    )
    def update_many(self, data: dict[str, Any], dry_run: str | None, **params: Any) -> Response:
        """Change all monitors that match the filters.

        At least one filter is required, and at most 1,000 monitors may match. Monitors that the caller can only read
        do not match, and `project_id` of a project in which the caller is a viewer is refused with 403 `read_only`.
        Each monitor is changed by itself, as by PATCH of this monitor, so one that is refused does not affect the
        others: `failed` has its error. A body that no monitor could take is refused with 422.
        """
        filters = read_filters(params)
        if filters == Filters():
            raise ValidationFailed("Give at least one filter, such as tag.")
        self.caller.require_write(project_id=filters.project or None)
        change = Change(given=data)
        with editing(self.caller):
            found = filters.narrow(selectors.list_monitors(self.caller), now=self.now)
            keys = chosen(access.writable(self.caller, found))
            planned = plan(self.caller, keys, change)
            if dry_run == "true":
                outcomes = [Outcome(one.public_id, one.name, bool(one.changes), one.error) for one in planned]
            else:
                outcomes = run(self.caller, planned, change, now=self.now)
        return Response(
            {
                "matched": len(outcomes),
                "changed": [one.public_id for one in outcomes if one.is_changed],
                "unchanged": [one.public_id for one in outcomes if not one.is_changed and one.error is None],
                "failed": [
                    {"id": one.public_id, "error": one.error.code, "reason": one.error.reason or one.error.code}
                    for one in outcomes
                    if one.error is not None
                ],
                "dry_run": dry_run == "true",
            }
        )

    @operation(body=MonitorInputSerializer, errors=(MonitorLimit,), throttles=(ProbeThrottle,))
    def create(self, data: dict[str, Any]) -> Monitor:
        """Create a monitor.

        Waits for the first check. If no worker runs it in time, the status is null.
        """
        return services.create_monitor(self.caller, data, now=self.now)

    def create_once(self, create: Callable[[], Any], serialize: Any) -> Any:
        """Create the monitor and wait for its first check. A repetition reads the monitor again."""
        is_checked = services.has_first_check(self.data, source=self.found)
        new: list[Monitor] = []

        def run() -> Created:
            new.append(create())
            return Created(new[-1].public_id)

        # Taken before the monitor is stored: a request that gets no place must not create anything.
        with limit_waiting(self.caller.account) if is_checked else nullcontext():
            created = create_once(self.request, self.caller, run, now=self.now)
            claim = services.FIRST_CLAIM
            if created.repeated:
                try:
                    monitor = self.get_object(created.object_id)
                except NotFound:
                    raise IdempotencyKeySpent from None
                # The first request may still be waiting for the first check, which belongs in the answer.
                interactive.await_first_check(monitor, claim=claim)
            else:
                (monitor,) = new
                if is_checked and not interactive.check_claimed(monitor, claim=claim):
                    services.release_first_claim(monitor, now=utc_now())
            monitor = self.get_object(monitor.public_id)
            return serialize([monitor])[0] | {ETAG: etag(monitor)}

    @operation(
        "copy",
        body=MonitorPatchSerializer,
        status=201,
        is_idempotent=True,
        errors=(MonitorLimit,),
        throttles=(ProbeThrottle,),
    )
    def copy(self, monitor_id: str, data: dict[str, Any]) -> Monitor:
        """Copy a monitor.

        Creates a monitor with all settings of this one, changed by the body, if there is one: by default enabled, with
        the same name and " (copy)". State, history, incidents and badges are not copied, and neither are
        the choices of alert channels, maintenance windows and status pages. Header values are copied unless the request
        would go to another server (scheme, host or port of `url`, or the Host header), a private location is added, or
        `project_id` names another project; they are dropped as by PATCH. Waits for the first check, as creation does.
        """
        return services.copy_monitor(self.caller, monitor_id, data, now=self.now)

    @operation(
        "test",
        detail=False,
        body=MonitorInputSerializer,
        answer=CheckResultSerializer,
        errors=(NoWorker,),
        throttles=(ProbeThrottle,),
    )
    def test(self, data: dict[str, Any]) -> Response:
        """Check a draft once, saving nothing."""
        config = services.config_of(self.caller, data)
        spec, owner_id = services.test_spec(config), self.caller.user.pk
        with limit_waiting(self.caller.account):
            return Response(interactive.check_draft(spec, owner_id=owner_id, locations=config.locations))

    @operation()
    def retrieve(self, monitor_id: str) -> Monitor:
        """Read a monitor."""
        return self.get_object(monitor_id)

    @operation(body=MonitorPatchSerializer, errors=(MonitorLimit,), locks=True)
    def partial_update(self, monitor_id: str, data: dict[str, Any]) -> Monitor:
        """Change a monitor.

        Stored header values are dropped, unless they are given again in the same request, when the request would go to
        another server (scheme, host or port of `url`, or the Host header), when a private location is added, or when
        `project_id` moves the monitor to another owner, which also drops `request_body` and needs the role owner or
        admin in the project that it leaves (403 `forbidden`). In the response these headers have `value_dropped`.
        """
        return services.update_monitor(self.caller, monitor_id, data, now=self.now, if_match=self.if_match)

    @operation()
    def destroy(self, monitor_id: str) -> None:
        """Delete a monitor."""
        services.delete_monitor(self.caller, monitor_id, if_match=self.if_match)

    @operation("mute", body=MuteSerializer)
    def mute(self, monitor_id: str, data: dict[str, Any]) -> Monitor:
        """Suppress down-detection and alerts of a monitor for a while."""
        operations.mute_for([self.found.pk], **data, now=self.now, caller=self.caller)
        return self.get_object(monitor_id)
