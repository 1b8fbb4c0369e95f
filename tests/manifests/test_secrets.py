from __future__ import annotations

import tracemalloc

import pytest

from pulsekeeper.manifest.secrets import MAX_FILLED, Keep, Secret, Variables, fill
from tests.steps import limited_steps

ENVIRONMENT = {"PK_TOKEN": "t0ken", "PK_EMPTY": "", "SECRET_KEY": "the server's own"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain $5 {x}", "plain $5 {x}"),
        ("${PK_TOKEN}", "t0ken"),
        ("Bearer ${PK_TOKEN}${PK_EMPTY}!", "Bearer t0ken!"),
        ("$${PK_TOKEN}", "${PK_TOKEN}"),
        ("${keep:PK_TOKEN}", "t0ken"),
    ],
)
def test_filled(text: str, value: str) -> None:
    assert fill(text, ENVIRONMENT) == Secret(value)


def test_kept_where_the_environment_says_nothing() -> None:
    assert fill("${keep:PK_OTHER}", ENVIRONMENT) == Keep("PK_OTHER")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${PK_MISSING}", "PK_MISSING is not in the environment"),
        ("${SECRET_KEY}", "names are PK_"),  # nor anything else that is not for files
        ("${keep:SECRET_KEY}", "names are PK_"),
        ("${pk_token}", "names are PK_"),
        ("a ${keep:PK_TOKEN}", "must be the whole value"),
        ("${PK_TOKEN", "without }"),
        ("${}", "names are PK_"),
    ],
)
def test_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        fill(text, ENVIRONMENT)


def test_a_long_variable_that_is_named_many_times_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=f"longer than {MAX_FILLED}"):
            fill("${PK_A}" * 9_000, {"PK_A": "x" * 10_000})
        assert tracemalloc.get_traced_memory()[1] < 4_000_000  # of 90 MB
    finally:
        tracemalloc.stop()


def test_a_secret_does_not_show_itself() -> None:
    assert "t0ken" not in f"{Secret('t0ken')} {Secret('t0ken')!r} {[Secret('t0ken')]}"


def test_names_are_readable_and_each_given_once() -> None:
    variables = Variables()
    assert variables.keep("channel", "On-call (EU)", "url") == "${keep:PK_CHANNEL_ON_CALL_EU_URL}"
    assert variables.keep("channel", "On call EU", "url") == "${keep:PK_CHANNEL_ON_CALL_EU_URL_2}"
    assert fill(variables.keep("monitor", "ü", "é" * 300), {}) == Keep("PK_MONITOR")
    assert variables.keep("channel", "On call EU", "url 2") == "${keep:PK_CHANNEL_ON_CALL_EU_URL_2_2}"
    assert variables.keep("channel", "On call EU", "url") == "${keep:PK_CHANNEL_ON_CALL_EU_URL_3}"


def test_many_equal_names_take_linear_time() -> None:
    variables = Variables()
    with limited_steps():
        names = {variables.keep("monitor", "Shop", "x" * 300) for _ in range(2_000)}
    assert len(names) == 2_000
