"""Random valid cron expressions that have due times."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from monitors.cron import BadScheduleError, Schedule

_FIELDS: tuple[tuple[int, int, tuple[str, ...]], ...] = (
    (0, 59, ()),
    (0, 23, ()),
    (1, 31, ()),
    (1, 12, ("JAN", "FEB", "MAR", "OCT", "DEC")),
    (0, 7, ("MON", "FRI", "SUN")),
)


def random_expression(random: Random) -> str:
    while True:
        expression = " ".join(_field(random, *field) for field in _FIELDS)
        try:
            return Schedule(expression).expression
        except BadScheduleError:
            continue


def expressions() -> st.SearchStrategy[str]:
    return st.randoms(use_true_random=False).map(random_expression)


def _field(random: Random, low: int, high: int, names: tuple[str, ...]) -> str:
    if random.random() < 0.35:
        return "*"
    return ",".join(_term(random, low, high, names) for _ in range(random.choice((1, 1, 1, 2, 3))))


def _term(random: Random, low: int, high: int, names: tuple[str, ...]) -> str:
    first, last = sorted(random.sample(range(low, high + 1), 2))
    step = random.randint(1, high)
    span = f"{first}-{last}"
    return random.choice((f"{first}", span, f"{span}/{step}", f"*/{step}", f"{first}/{step}", *names))
