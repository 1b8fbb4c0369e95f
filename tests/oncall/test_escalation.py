"""How an incident goes through an escalation policy."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from oncall import escalation
from oncall.escalation import Action, NotifyOwner, Plan, Progress, Run, State, Step, Unacknowledge

START = datetime(2026, 11, 28, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def plan_of(*minutes: int, repeat: int = 0, timeout: int = 0) -> Plan:
    return Plan(tuple(Step(after * MINUTE) for after in minutes), repeat, timeout * MINUTE or None)


def at(minutes: float) -> datetime:
    return START + minutes * MINUTE


def run_due(
    progress: Progress, plan: Plan | None, minutes: float, unreachable: set[int] | None = None
) -> tuple[Progress, list[str]]:
    """Run what is due, as the engine does. Return `round.step@minute` for each step, and the other actions."""
    rows: list[str] = []
    while True:
        progress, actions = escalation.due(progress, plan, at(minutes))
        if not actions:
            return progress, rows
        progress, shown = carry_out(progress, plan, actions, unreachable or set())
        rows += shown


def carry_out(
    progress: Progress, plan: Plan | None, actions: tuple[Action, ...], unreachable: set[int]
) -> tuple[Progress, list[str]]:
    rows = []
    for action in actions:
        match action:
            case Run():
                planned = (action.at - START) / MINUTE
                is_empty = action.step in unreachable
                rows.append(f"{action.round}.{action.step}@{planned:g}" + (" empty" if is_empty else ""))
                if is_empty:
                    assert plan is not None
                    progress, more = escalation.empty(progress, plan, action)
                    progress, shown = carry_out(progress, plan, more, unreachable)
                    rows += shown
            case NotifyOwner():
                rows.append(f"owner {action.run}")
            case Unacknowledge():
                rows.append("unacknowledge")
    return progress, rows


def test_steps_run_at_their_times_and_repeat() -> None:
    plan = plan_of(0, 10, 5, repeat=1)
    progress, rows = run_due(escalation.begin(plan, START), plan, 0)
    assert rows == ["0.0@0"]
    assert progress == Progress(State.RUNNING, step=1, next_at=at(10), reached=True)
    assert run_due(progress, plan, 9.9) == (progress, [])
    progress, rows = run_due(progress, plan, 10)
    assert rows == ["0.1@10"]
    progress, rows = run_due(progress, plan, 15)
    assert rows == ["0.2@15", "1.0@15"]
    progress, rows = run_due(progress, plan, 100)
    assert rows == ["1.1@25", "1.2@30"]
    assert progress == Progress(State.FINISHED, round=1, step=2, reached=True)
    assert run_due(progress, plan, 1000) == (progress, [])


def test_late_steps_run_once_each_and_the_next_one_is_at_its_planned_time() -> None:
    plan = plan_of(1, 10, 10, 10)
    progress, rows = run_due(escalation.begin(plan, START), plan, 25)
    assert rows == ["0.0@1", "0.1@11", "0.2@21"]
    assert progress.next_at == at(31)


def test_a_step_that_reaches_no_one_is_followed_at_once() -> None:
    plan = plan_of(0, 10, 10, 10, repeat=1)
    progress, rows = run_due(escalation.begin(plan, START), plan, 0, unreachable={0, 1})
    assert rows == ["0.0@0 empty", "0.1@0 empty", "0.2@0"]
    assert (progress.next_at, progress.reached) == (at(10), True)
    progress, rows = run_due(progress, plan, 10, unreachable={0, 1, 2, 3})
    assert rows == ["0.3@10 empty", "1.0@10 empty"]
    progress, rows = run_due(progress, plan, 40, unreachable={0, 1, 2, 3})
    assert rows == ["1.1@20 empty", "1.2@30 empty", "1.3@40 empty"]
    assert (progress.state, progress.reached) == (State.FINISHED, True)


def test_rounds_do_not_collapse_if_a_step_reaches_no_one() -> None:
    plan = plan_of(0, 10, repeat=2)
    progress, rows = run_due(escalation.begin(plan, START), plan, 0, unreachable={0})
    assert rows == ["0.0@0 empty", "0.1@0", "1.0@0 empty"]
    progress, rows = run_due(progress, plan, 100, unreachable={0})
    assert rows == ["1.1@10", "2.0@10 empty", "2.1@20"]
    assert progress.state is State.FINISHED


def test_the_owner_is_notified_once_if_the_policy_reaches_no_one() -> None:
    plan = plan_of(5, 10, repeat=9, timeout=30)
    progress, rows = run_due(escalation.begin(plan, START), plan, 5, unreachable={0, 1})
    assert rows == ["0.0@5 empty", "0.1@5 empty", "owner 0"]
    assert (progress.state, progress.next_at, progress.reached) == (State.FINISHED, None, False)
    # The owner acknowledges, and does not resolve it in time.
    progress, _ = escalation.acknowledge(progress, plan, at(10))
    progress, rows = run_due(progress, plan, 100, unreachable={0, 1})
    assert rows == ["unacknowledge", "0.0@45 empty", "0.1@45 empty", "owner 1"]


def test_an_acknowledgement_stops_it_until_its_timeout() -> None:
    plan = plan_of(2, 10, timeout=30)
    progress, _ = run_due(escalation.begin(plan, START), plan, 2)
    progress, actions = escalation.acknowledge(progress, plan, at(5))
    assert (progress.state, progress.next_at, actions) == (State.ACKNOWLEDGED, at(35), ())
    assert escalation.acknowledge(progress, plan, at(20)) == (progress, ())
    assert escalation.escalate(progress, plan, at(20)) == (progress, ())
    assert escalation.hold(progress, at(60)) == (progress, ())
    assert run_due(progress, plan, 34.9) == (progress, [])
    progress, rows = run_due(progress, plan, 35)
    assert rows == ["unacknowledge"]
    assert progress == Progress(State.RUNNING, run=1, next_at=at(37))


def test_without_a_timeout_an_acknowledgement_stays() -> None:
    plan = plan_of(0, 10)
    progress, _ = escalation.acknowledge(escalation.begin(plan, START), plan, at(5))
    assert progress.next_at is None
    assert run_due(progress, plan, 10_000) == (progress, [])
    progress, actions = escalation.unacknowledge(progress, plan, at(20))
    assert (progress, actions) == (Progress(State.RUNNING, run=1, next_at=at(20)), ())
    assert escalation.unacknowledge(progress, plan, at(20)) == (progress, ())


def test_escalating_runs_the_next_step_now() -> None:
    plan = plan_of(0, 10, 10)
    progress, _ = run_due(escalation.begin(plan, START), plan, 0)
    progress, actions = escalation.escalate(progress, plan, at(3))
    assert actions == (Run(0, 0, 1, at(3), reached_before=True),)
    assert progress.next_at == at(13)
    progress, actions = escalation.escalate(progress, plan, at(3))
    assert progress.state is State.FINISHED
    assert escalation.escalate(progress, plan, at(3)) == (progress, ())


def test_a_held_step_waits_and_later_ones_count_from_then() -> None:
    plan = plan_of(0, 10)
    progress, actions = escalation.hold(escalation.begin(plan, START), at(60))
    assert actions == ()
    assert escalation.hold(progress, at(30)) == (progress, ())
    assert run_due(progress, plan, 59) == (progress, [])
    progress, rows = run_due(progress, plan, 60)
    assert (rows, progress.next_at) == (["0.0@60"], at(70))


def test_nothing_runs_after_it_is_resolved() -> None:
    plan = plan_of(0, 10, timeout=30)
    running = escalation.begin(plan, START)
    for progress in (running, escalation.acknowledge(running, plan, START)[0]):
        ended, actions = escalation.resolve(progress)
        assert (ended.state, ended.next_at, actions) == (State.FINISHED, None, ())
        assert run_due(ended, plan, 100) == (ended, [])
        assert escalation.unacknowledge(ended, plan, at(1)) == (ended, ())


def test_a_policy_with_fewer_steps_goes_on_with_the_next_round() -> None:
    long, short = plan_of(0, 10, 10, repeat=1), plan_of(3, repeat=1)
    progress, _ = run_due(escalation.begin(long, START), long, 10)
    assert (progress.step, progress.next_at) == (2, at(20))
    assert escalation.settle(progress, short) == replace(progress, round=1, step=0, next_at=at(23))
    progress, rows = run_due(progress, short, 22)
    assert rows == []
    progress, rows = run_due(progress, short, 23)
    assert (rows, progress.state) == (["1.0@23"], State.FINISHED)


def test_a_policy_without_further_rounds_ends() -> None:
    long, short = plan_of(0, 10, 10, repeat=1), plan_of(0)
    progress, _ = run_due(escalation.begin(long, START), long, 10)
    assert escalation.settle(progress, short).next_at is None
    assert escalation.escalate(progress, short, at(11))[1] == ()
    progress, rows = run_due(progress, short, 20)
    assert (rows, progress.state) == ([], State.FINISHED)


def test_a_deleted_policy_ends_and_says_so_if_it_reached_no_one() -> None:
    plan = plan_of(10, 10, timeout=5)
    begun = escalation.begin(plan, START)
    assert run_due(begun, None, 10)[1] == ["owner 0"]
    assert escalation.escalate(begun, None, at(1))[1] == (NotifyOwner(0),)
    reached, _ = run_due(begun, plan, 10)
    progress, rows = run_due(reached, None, 20)
    assert (rows, progress.state) == ([], State.FINISHED)
    acknowledged, _ = escalation.acknowledge(reached, plan, at(12))
    assert run_due(acknowledged, None, 20)[1] == ["unacknowledge", "owner 1"]
    assert escalation.acknowledge(reached, None, at(12))[0].next_at is None


EVENTS = st.one_of(
    st.tuples(st.just("due"), st.integers(0, 30)),
    st.tuples(st.sampled_from(["acknowledge", "unacknowledge", "escalate"]), st.just(0)),
    st.tuples(st.just("hold"), st.integers(0, 30)),
    st.tuples(st.just("edit"), st.integers(1, 4)),
)


@given(
    waits=st.lists(st.integers(0, 10), min_size=1, max_size=4),
    repeat=st.integers(0, 3),
    timeout=st.integers(0, 20),
    unreachable=st.sets(st.integers(0, 3)),
    events=st.lists(EVENTS, max_size=30),
)
def test_no_step_runs_twice_and_no_end_is_silent(
    waits: list[int], repeat: int, timeout: int, unreachable: set[int], events: list[tuple[str, int]]
) -> None:
    plan, minutes = plan_of(*waits, repeat=repeat, timeout=timeout), 0.0
    progress, ran, owners, notified = escalation.begin(plan, START), [], [], set()
    for event, number in [*events, ("due", 10_000)]:
        before = progress
        actions: tuple[Action, ...] = ()
        match event:
            case "due":
                minutes += number
            case "acknowledge":
                progress, actions = escalation.acknowledge(progress, plan, at(minutes))
            case "unacknowledge":
                progress, actions = escalation.unacknowledge(progress, plan, at(minutes))
            case "escalate":
                progress, actions = escalation.escalate(progress, plan, at(minutes))
            case "hold":
                progress, actions = escalation.hold(progress, at(minutes + number))
            case "edit":
                plan = plan_of(*[5] * number, repeat=repeat, timeout=timeout)
        while True:
            for action in actions:
                if isinstance(action, Run):
                    ran.append((action.run, action.round, action.step))
                    assert action.at <= at(minutes)
                    assert action.round <= plan.repeat
                    assert action.step < len(plan.steps)
                    if action.step in unreachable:
                        progress, more = escalation.empty(progress, plan, action)
                        owners += [each.run for each in more if isinstance(each, NotifyOwner)]
                    else:
                        notified.add(action.run)
                elif isinstance(action, NotifyOwner):
                    owners.append(action.run)
            if event == "due" and timeout and progress.state is State.ACKNOWLEDGED and number == 10_000:
                break  # it would start again for ever
            progress, actions = escalation.due(progress, plan, at(minutes))
            if not actions:
                break
        assert progress.run >= before.run
    assert ran == sorted(set(ran))
    assert len(owners) == len(set(owners))
    assert not notified & set(owners)
    if progress.state is State.FINISHED:
        assert progress.run in notified | set(owners)
