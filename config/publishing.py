"""Publish messages, or report that the broker is unreachable. Beat imports this too, so it imports little."""

from __future__ import annotations

from typing import Any

import kombu
from amqp.exceptions import RecoverableConnectionError
from celery.app import amqp
from kombu.pools import ProducerPool


class Producer(kombu.Producer):
    """Publishes again if its channel was closed while it waited.

    kombu declares the queue first, and connects again for that if it must, for example after a failover. Then it
    publishes to the closed channel, which raises AttributeError.
    """

    def _publish(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._publish(*args, **kwargs)
        except AttributeError as error:
            if getattr(self.channel, "connection", None) is not None:
                raise
            raise RecoverableConnectionError("the channel was closed") from error


class AMQP(amqp.AMQP):
    Producer = Producer

    @property
    def producer_pool(self) -> ProducerPool:
        pool = super().producer_pool
        pool.Producer = Producer
        return pool
