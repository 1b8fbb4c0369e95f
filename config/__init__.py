from core import logs
from core.optional_imports import blocked

logs.capture()

with blocked("opentelemetry"):
    # redis would import it for metrics, which costs each process 2.5 MiB. So import redis here first, without it.
    import redis  # noqa: F401

from config.celery import app as celery_app  # noqa: E402 - its errors are logged

__all__ = ["celery_app"]
