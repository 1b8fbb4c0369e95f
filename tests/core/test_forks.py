"""Work in a fork."""

from __future__ import annotations

import os
import time

import pytest

from core import forks


def fail() -> bytes:
    raise ValueError


def sleep() -> bytes:
    time.sleep(3_600)
    return b""


def test_the_result_comes_from_another_process() -> None:
    assert forks.in_fork(lambda: str(os.getpid()).encode()) not in (None, str(os.getpid()).encode())
    assert forks.in_fork(lambda: b"x" * 1_000_000) == b"x" * 1_000_000
    assert forks.in_fork(lambda: b"") == b""
    assert forks.in_fork(fail) is None


def test_a_fork_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "PATIENCE_SEC", 0.1)
    assert forks.in_fork(sleep) is None
