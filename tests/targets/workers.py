"""A real worker in a network namespace, for tests. Import it after Django is set up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from celery.contrib.testing.worker import start_worker
from django.conf import settings

from config.celery import app
from monitors.checking.runner import drain, shared_engine
from tests.helpers import flush_broker
from tests.targets.namespace import Namespace


@contextmanager
def worker_in(namespace: Namespace, *, concurrency: int, may_ping: bool = True) -> Iterator[None]:
    """Run a worker whose threads are all in the namespace. It reaches the database by a Unix socket."""
    flush_broker()
    _forget_probers()
    queues = ["interactive", "probes"]
    worker = start_worker(app, pool="threads", concurrency=concurrency, perform_ping_check=False, queues=queues)
    broker = urlsplit(settings.REDIS_URL or "").port
    assert broker is not None
    with namespace.forwarding(broker):
        (namespace.run if may_ping else namespace.without_raw_sockets)(worker.__enter__)
        yield
        worker.__exit__(None, None, None)
        _forget_probers()


def _forget_probers() -> None:
    drain(grace_sec=0)
    shared_engine.cache_clear()
