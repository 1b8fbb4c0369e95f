"""Run the steps of escalations when they are due. `oncall.escalation` decides which; the outbox of alerts sends them.

Who changes an escalation has locked its incident. So an acknowledgement, a recovery and a step at the same instant come
one after the other, and the progress of an escalation is stored with the messages of its step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from accounts.models import User
from alerts.batch import LOOK_AGAIN, NotificationBatch, applies, incident_payload
from alerts.events import EventType
from alerts.models import AlertChannel
from alerts.notify import MOST_ITEMS
from alerts.outbox import OutboxItem
from alerts.planning import ESCALATED
from alerts.services import ensure_own_address
from core.db import get_or_not_found, lock_in_turn
from core.errors import IncidentResolved, LimitReached, NotEscalating
from core.isolation import TRY_AGAIN, run_isolated
from core.text import one_line
from incidents.holding import Cause
from incidents.models import Escalation, Incident, IncidentEvent
from incidents.selectors import get_incident
from incidents.services import lock_incident
from monitors.locking import write_columns
from oncall import escalation, reaching
from oncall.escalation import Plan, Progress, Run, State, Unacknowledge
from oncall.models import EscalationPolicy
from projects.access import Caller

BATCH = 500
"""Incidents in a transaction, which locks the channels of their steps."""
MAX_TAKEN_BACK = 100
"""How often people take back the acknowledgement of an incident: each time its people are notified again."""
_PATIENCE = timedelta(seconds=10)
_AT_ONCE = timedelta()
_PROGRESS = ("state", "run", "round", "step", "next_at", "reached")
_INCIDENT = (
    *("quiet", "look_again_at", "caused_by"),
    *("acknowledged_at", "acknowledged_by", "acknowledgement_announced_at"),
)

Type = IncidentEvent.Type
Quiet = Incident.Quiet


def run_due(now: datetime) -> bool:
    """Run the steps that are due, of about BATCH incidents, those due first before others. Return whether more may be.

    Late ones, because nothing ran, run once each. Incidents that another transaction has locked are left to it. One
    whose step raises is tried again TRY_AGAIN later, and stops no other.
    """
    due = Incident.objects.filter(escalation__next_at__lte=now)

    def put_off(failed: QuerySet[Incident]) -> None:
        late = Escalation.objects.filter(incident__in=failed, next_at__lte=now)
        late.update(next_at=now + TRY_AGAIN)

    return run_isolated(partial(_run_due, now), due, most=BATCH, put_off=put_off)


def _run_due(now: datetime, keys: Collection[int] | None) -> bool:
    """Do it for the incidents with these keys, or all."""
    due = Incident.objects.filter(escalation__next_at__lte=now)
    if keys is not None:
        due = due.filter(pk__in=keys)
    with transaction.atomic():
        locked, is_full = lock_in_turn(due, account="owner", first="escalation__next_at", most=BATCH)
        stepper = Stepper(due.filter(pk__in=locked), now=now)
        is_left = stepper.run_due(locked)
        stepper.write()
    return is_left or (is_full and bool(stepper.incidents))


def escalate(caller: Caller, public_id: str, *, now: datetime) -> Incident:
    """Run the next step now. Raises NotEscalating if nothing is left to run."""
    with transaction.atomic():
        incident = lock_incident(caller, public_id)
        stepper = Stepper(Incident.objects.filter(pk=incident.pk), now=now, is_one=True)
        stepper.note(f"{caller.user.email} ran the next step.", by=caller.user.email)
        if not incident.is_open or not stepper.escalate():
            raise NotEscalating
        stepper.write()
        return get_incident(caller, public_id)


def unacknowledge(caller: Caller, public_id: str, *, now: datetime) -> Incident:
    """Take an acknowledgement back: its escalation begins again. Nothing happens if it is not acknowledged."""
    with transaction.atomic():
        incident = lock_incident(caller, public_id)
        if not incident.is_open:
            raise IncidentResolved
        take_back(incident, caller.user, now=now)
        return get_incident(caller, public_id)


def unacknowledge_by_link(user: User, incident_id: int, *, now: datetime) -> None:
    """Take an acknowledgement back for the person of a link. Nothing happens if the incident is resolved."""
    with transaction.atomic():
        incident = get_or_not_found(Incident.objects.select_for_update(no_key=True), pk=incident_id)
        if incident.is_open:
            take_back(incident, user, now=now, way="link")


def take_back(incident: Incident, user: User, *, now: datetime, way: str = "") -> None:
    """Take back the acknowledgement of a locked incident. Raises LimitReached."""
    if incident.acknowledged_at is None:
        return
    if incident.events.filter(type=Type.UNACKNOWLEDGED, data__has_key="by").count() >= MAX_TAKEN_BACK:
        reason = f"This acknowledgement stays: {MAX_TAKEN_BACK} were taken back."
        raise LimitReached(reason, limit=MAX_TAKEN_BACK)
    _forget_acknowledgement(incident)
    incident.save(update_fields=["acknowledged_at", "acknowledged_by", "acknowledgement_announced_at"])
    text = f"{user.email} took the acknowledgement back{', with the link of a message' if way else ''}."
    data = {"by": user.email} | ({"way": way} if way else {})
    incident.events.create(type=Type.UNACKNOWLEDGED, text=text, at=now, data=data)
    stepper = Stepper(Incident.objects.filter(pk=incident.pk), now=now, is_one=True)
    stepper.begin_again()
    stepper.write()


def stop(incident: Incident, now: datetime) -> None:
    """Stop the escalation of an incident that is being acknowledged, until that times out."""
    found = Escalation.objects.select_for_update(of=["self"], no_key=True).select_related("policy")
    row = found.filter(incident=incident).first()
    if row is not None:
        progress, _ = escalation.acknowledge(_progress_of(row), _plan(row.policy), now)
        _store(row, progress)
        row.save(update_fields=_PROGRESS)


def set_back(now: datetime) -> None:
    """Correct steps that would be late because PostgreSQL's clock was set back: each waits no longer than planned."""
    rows = Escalation.objects.select_for_update(of=["self"], no_key=True).filter(next_at__gt=now).order_by("pk")
    late = []
    for row in rows.select_related("policy"):
        latest = now + escalation.longest_wait(_progress_of(row), _plan(row.policy))
        if row.next_at is not None and row.next_at > latest:
            row.next_at = latest
            late.append(row)
    write_columns(late, ["next_at"])


def _forget_acknowledgement(incident: Incident) -> None:
    incident.acknowledged_at = incident.acknowledged_by = incident.acknowledgement_announced_at = None


class Stepper:
    """Moves the escalations of locked incidents on, and writes what follows."""

    def __init__(self, incidents: QuerySet[Incident], *, now: datetime, is_one: bool = False) -> None:
        self._now = now
        # Several are not waited for: a policy that is being deleted has locked them in another order.
        rows = Escalation.objects.select_for_update(of=["self"], no_key=True, skip_locked=not is_one)
        found = rows.filter(incident__in=incidents).select_related("policy").order_by("next_at", "pk")
        self._rows = {row.pk: row for row in found}
        related = ("monitor__project", "monitor__owner", "project", "owner")
        by_pk = Incident.objects.filter(pk__in=self._rows).select_related(*related).in_bulk()
        self.incidents = [by_pk[pk] for pk in self._rows]
        self._policies = {
            incident.pk: policy
            for incident in self.incidents
            if (policy := self._rows[incident.pk].policy) is not None
            and incident.monitor is not None
            and applies(policy, incident.monitor)
        }
        self._batch = NotificationBatch(self.incidents, now, routes={})
        self._directory = reaching.Directory(set(self._policies.values()), now=now, lock=True)
        self._unheard: dict[User, list[Incident]] = defaultdict(list)

    def run_due(self, keys: Sequence[int]) -> bool:
        """Run what is due of the incidents, about MOST_ITEMS. They wait, or end, as their alerts do.

        They take turns, step by step, in the order of their keys: all steps of a policy may be due at once. Return
        whether some are left.
        """
        waiting = []
        places = {pk: place for place, pk in enumerate(keys)}
        for incident in sorted(self.incidents, key=lambda incident: places[incident.pk]):
            if self._waits(incident):
                continue
            progress = _progress_of(self._rows[incident.pk])
            if not incident.is_open or incident.monitor is None:
                progress, _ = escalation.resolve(progress)
            elif progress.state is State.RUNNING and self._suppress(incident):
                progress, _ = escalation.hold(progress, self._now + LOOK_AGAIN)
            _store(self._rows[incident.pk], progress)
            waiting.append(incident)
        while waiting:
            again = []
            for incident in waiting:
                if len(self._batch.items) >= MOST_ITEMS:
                    return True
                if self._advance(incident):
                    again.append(incident)
            waiting = again
        return False

    def _waits(self, incident: Incident) -> bool:
        """Return whether the step waits a moment for the deletion of an account: then a later run knows who is left."""
        policy, next_at = self._policies.get(incident.pk), self._rows[incident.pk].next_at
        is_late = next_at is None or next_at <= self._now - _PATIENCE
        return policy is not None and not is_late and self._directory.waits(policy)

    def escalate(self) -> bool:
        """Run the next step of the incident now. Return whether one was left."""
        for incident in self.incidents:
            row = self._rows[incident.pk]
            progress, actions = escalation.escalate(_progress_of(row), self._plan(incident), self._now)
            _store(row, self._do(incident, progress, actions))
            while len(self._batch.items) < MOST_ITEMS and self._advance(incident):
                pass  # more than that is left to `run_due`
            return any(isinstance(action, Run) for action in actions)
        return False

    def begin_again(self) -> None:
        """Begin again with the first step, since the acknowledgement was taken back."""
        for incident in self.incidents:
            before = _progress_of(self._rows[incident.pk])
            progress, actions = escalation.unacknowledge(before, self._plan(incident), self._now)
            _store(self._rows[incident.pk], self._do(incident, progress, actions))

    def note(self, text: str, **data: Any) -> None:
        """Add an entry to the timelines."""
        for incident in self.incidents:
            self._batch.note(incident, Type.ESCALATED, text, **data)

    def write(self) -> None:
        """Store the progress with the messages and timelines."""
        for owner in sorted(self._unheard, key=lambda user: user.pk):  # the order of locks
            self._notify_owner(owner, self._unheard[owner])
        write_columns(list(self._rows.values()), _PROGRESS)
        write_columns(self.incidents, _INCIDENT)
        self._batch.write()

    def _suppress(self, incident: Incident) -> bool:
        """Return whether no step runs now, and note why. Flapping suppresses further outages, not this one."""
        reason = self._batch.silences.get(incident.monitor_id)
        if reason in (Quiet.MUTED, Quiet.MAINTENANCE):
            self._batch.suppress(incident, reason)
            return True
        hold = self._batch.holds.of.get(incident.pk)
        if hold is not None and hold.cause is Cause.DOWN:
            self._batch.hold(incident, hold)
            return True
        return False

    def _advance(self, incident: Incident) -> bool:
        """Do what is due first, and keep the progress. Return whether something was due."""
        row = self._rows[incident.pk]
        progress, actions = escalation.due(_progress_of(row), self._plan(incident), self._now)
        _store(row, self._do(incident, progress, actions))
        return bool(actions)

    def _do(self, incident: Incident, progress: Progress, actions: Sequence[escalation.Action]) -> Progress:
        for action in actions:
            if isinstance(action, Run):
                progress = self._run(incident, progress, action)
            elif isinstance(action, Unacknowledge):
                _forget_acknowledgement(incident)
                text = "The incident was not resolved in time: the acknowledgement was taken back."
                self._batch.note(incident, Type.UNACKNOWLEDGED, text)
            else:
                owner = incident.owner if incident.monitor is None else incident.monitor.owner
                self._unheard[owner].append(incident)
        return progress

    def _run(self, incident: Incident, progress: Progress, run: Run) -> Progress:
        """Notify the targets of a step."""
        policy, plan = self._policies[incident.pk], self._plan(incident)
        assert plan is not None
        step = self._directory.look_up(policy, policy.steps[run.step]["targets"])
        later = f" (round {run.round + 1})" if run.round else ""
        name = f"Step {run.step + 1} of “{one_line(policy.name)}”{later}"
        texts = "; ".join(step.texts) or "it has no targets"
        text = f"{name}: {texts}." if step.ways else f"{name} reaches no one: {texts}."
        people = [user.email for user in step.people]
        self._batch.note(incident, Type.ESCALATED, text, step=run.step, round=run.round, people=people)
        for way in step.ways:
            source = f"{ESCALATED}{incident.pk}:{run.run}.{run.round}.{run.step}:{way.key}"
            self._put(incident, source, way.channel, user=way.user, after=way.after)
        incident.quiet = incident.look_again_at = incident.caused_by = None
        if step.is_reached:
            return progress
        return self._do(incident, *escalation.empty(progress, plan, run))

    def _put(
        self, incident: Incident, source: str, channel: AlertChannel, *, user: User | None, after: timedelta = _AT_ONCE
    ) -> None:
        payload = incident_payload(incident, EventType.DOWN, self._now)
        due_at = self._now + after if after else None
        user_id = None if user is None else user.pk
        self._batch.items.append(OutboxItem(source, payload, [channel.pk], incident, due_at=due_at, user_id=user_id))

    def _notify_owner(self, owner: User, incidents: Sequence[Incident]) -> None:
        """Notify the owner of outages whose policies reached no one."""
        channel = ensure_own_address(owner, now=self._now) if owner.is_active else None
        for incident in incidents:
            policy = self._policies.get(incident.pk)
            text = f"“{one_line(policy.name)}” reached no one" if policy else "The escalation policy was deleted"
            if channel is None:
                text += ", and the owner has no confirmed e-mail address."
            else:
                text += f": the owner {one_line(owner.email)} is notified by e-mail."
                source = f"{ESCALATED}{incident.pk}:{self._rows[incident.pk].run}.owner"
                self._put(incident, source, channel, user=owner)
            people = [owner.email] if channel is not None else []
            self._batch.note(incident, Type.ESCALATED, text, people=people)

    def _plan(self, incident: Incident) -> Plan | None:
        """Return the plan of an incident. None if its policy was deleted or no longer applies to its monitor."""
        return _plan(self._policies.get(incident.pk))


def _plan(policy: EscalationPolicy | None) -> Plan | None:
    return None if policy is None else reaching.plan_of(policy)


def _progress_of(row: Escalation) -> Progress:
    return Progress(State(row.state), row.run, row.round, row.step, row.next_at, row.reached)


def _store(row: Escalation, progress: Progress) -> None:
    row.state, row.run, row.round, row.step = progress.state.value, progress.run, progress.round, progress.step
    row.next_at, row.reached = progress.next_at, progress.reached
