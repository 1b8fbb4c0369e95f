"""The connections of this process to its databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.postgresql.base import DatabaseWrapper

from core.postgresql import HISTORY


def disconnect(alias: str = DEFAULT_DB_ALIAS) -> None:
    wrapper = connections[alias]
    assert isinstance(wrapper, DatabaseWrapper)
    wrapper.close()
    wrapper.close_pool()


@contextmanager
def refused_history() -> Iterator[None]:
    """Let new connections to the history database be refused."""
    disconnect(HISTORY)
    elsewhere = connections[HISTORY].settings_dict | {"HOST": "127.0.0.1", "PORT": "1"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections[HISTORY], "settings_dict", elsewhere)
        yield
        disconnect(HISTORY)
