from __future__ import annotations

from celery import shared_task

from core.clock import utc_now
from manifests.models import Upload


@shared_task(name="manifests.tasks.sweep")
def sweep() -> None:
    Upload.objects.filter(Upload.expired(utc_now())).delete()
