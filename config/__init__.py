from core.optional_imports import blocked

with blocked("opentelemetry"):
    # redis would import it for metrics, which costs each process 2.5 MiB. So import redis here first, without it.
    import redis  # noqa: F401

from config.celery import app as celery_app

__all__ = ["celery_app"]
