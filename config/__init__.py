from core.optional_imports import blocked

with blocked("opentelemetry"):
    # 2.5 MiB of every process that redis takes along for metrics that nobody asks it for. So it is loaded here, first.
    import redis  # noqa: F401

from config.celery import app as celery_app

__all__ = ["celery_app"]
