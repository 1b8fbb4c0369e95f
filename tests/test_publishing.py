"""Messages are published even if the broker refuses a write, as during a failover."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from celery import Celery
from django.conf import settings
from redis import Redis

from config.beat import app as beat
from config.celery import app
from config.publishing import Producer
from tests.helpers import flush_broker

READ_ONLY = b"-READONLY You can't write against a read only replica.\r\n"


@pytest.fixture
def failover() -> Iterator[str]:
    """Yield the address of a relay to the broker that answers the first declaration of a queue as a replica does."""
    refused = threading.Event()
    broker = urlsplit(settings.REDIS_URL or "")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            with contextlib.suppress(OSError):  # the listener is closed at the end
                while True:
                    threading.Thread(target=forward, args=listener.accept()[:1], daemon=True).start()

        def forward(client: socket.socket) -> None:
            with client, socket.create_connection((str(broker.hostname), int(broker.port or 0))) as server:
                while True:
                    for source in select.select([client, server], [], [])[0]:
                        part = source.recv(65_536)
                        if not part:
                            return
                        if source is client and b"_kombu.binding" in part and not refused.is_set():
                            refused.set()
                            writes = part.count(b"SADD")
                            client.sendall(b"+OK\r\n" + writes * READ_ONLY + b"-EXECABORT Transaction discarded\r\n")
                        else:
                            (server if source is client else client).sendall(part)

        threading.Thread(target=accept, daemon=True).start()
        yield broker._replace(netloc=broker.netloc.replace(str(broker.port), str(listener.getsockname()[1]))).geturl()
        assert refused.is_set()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("sender", [app, beat], ids=["workers", "beat"])
def test_the_channel_is_closed_while_the_queue_is_declared(sender: Celery, failover: str) -> None:
    flush_broker()
    with sender.connection_for_write(failover) as connection:
        producer = sender.amqp.Producer(connection, auto_declare=False)
        sender.send_task("monitors.tasks.dispatch_due", expires=60, producer=producer)
    assert Redis.from_url(settings.REDIS_URL or "").llen("dispatch") == 1


def test_pooled_producers_do_the_same() -> None:
    with app.producer_pool.acquire(block=True) as producer:
        assert type(producer) is Producer


def test_a_task_that_ends_while_the_broker_is_away_leaves_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    flush_broker()
    with app.connection_for_read() as connection, connection.SimpleQueue("tests.acks") as queue:
        queue.put("ends")
        message = queue.get(timeout=30)
        assert message.channel is not None
        pool = message.channel.pool
        pool.disconnect()
        pool.connection_kwargs["port"] = 1  # an address without a server
        pool.reset()
        message.ack_log_error(logging.getLogger("celery.worker.request"), connection.connection_errors)
    (record,) = [record for record in caplog.records if "Couldn't ack" in record.message]
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)
