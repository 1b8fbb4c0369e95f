"""Every regex of the product takes linear time: most of the searched texts come from outside."""

from __future__ import annotations

import importlib
import re
import time

import pytest

from tests.test_layers import APPS, ROOT

LENGTH = 20_000
MOST_SECONDS = 0.1  # of CPU; a quadratic regex takes a second or more, a slow linear one 20 ms
STARTS = ("", "a", "http://", "token", "bearer", "[BODY].")
ATOMS = (
    "?", "=", "&", ";", ",", " ", "\t", "\n", "a", "A", "0", "1", "é", "a-", "a_", "a.", "a=", "a:", "?a", "?=", "&a",
    ".",
    "../", ":", "/", "//", "://", "a://", "http://", "@", "a@", '"', "'", "\\", "\\u", "\\ud800", "%", "$", "$$", "${",
    "{",
    "}", "[", "]", "(", ")", "<", ">", "==", "*", "#", "-", "_", "1.", "1h", "token ", "token:", "secret=", "bearer ",
    "bearer", "sig", "charset ", "has(", "pat(*", "[BODY]", "ses_", "mon_a", "with url: ", "x\n",
)  # fmt: skip


def patterns() -> dict[str, re.Pattern[str] | re.Pattern[bytes]]:
    """Return the regexes in modules of the product, by name."""
    found: dict[str, re.Pattern[str] | re.Pattern[bytes]] = {}
    for path in sorted(path for app in APPS for path in (ROOT / app).rglob("*.py")):
        if "re.compile(" in path.read_text():
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            module = importlib.import_module(name)
            found |= {f"{name}.{key}": value for key, value in vars(module).items() if isinstance(value, re.Pattern)}
    return found


PATTERNS = patterns()


def test_all_are_found() -> None:
    assert {"checks.evidence._QUERY_VALUE", "core.masking._SECRET", "statuspages.public._SLUG"} <= set(PATTERNS)


def seconds(pattern: re.Pattern[str] | re.Pattern[bytes], text: str) -> float:
    """Return the lowest CPU time of three attempts."""
    given: str | bytes = text.encode() if isinstance(pattern.pattern, bytes) else text
    best = float("inf")
    for _ in range(3):
        before = time.thread_time()
        pattern.sub("" if isinstance(given, str) else b"", given)  # type: ignore[arg-type]
        pattern.fullmatch(given)  # type: ignore[arg-type]
        best = min(best, time.thread_time() - before)
        if best < MOST_SECONDS:
            break
    return best


@pytest.mark.parametrize("name", PATTERNS)
def test_it_is_linear(name: str) -> None:
    for start in STARTS:
        for atom in ATOMS:
            text = start + (atom * LENGTH)[:LENGTH] + "!"
            assert seconds(PATTERNS[name], text) < MOST_SECONDS, f"{start!r} and many {atom!r}"
