"""What is done to projects."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from projects import access
from projects.access import Caller
from projects.models import Membership, Project, Role


def create_project(caller: Caller, *, name: str, now: datetime) -> Project:
    caller.require_session()
    with transaction.atomic():
        project = Project.objects.create(name=name, created_at=now)
        Membership.objects.create(project=project, user=caller.user, role=Role.OWNER)
    return project


def rename_project(caller: Caller, public_id: str, *, name: str) -> None:
    caller.require_session()
    project = access.get_project(caller, public_id, roles=access.MANAGERS)
    Project.objects.filter(pk=project.pk).update(name=name)


def delete_project(caller: Caller, public_id: str) -> None:
    """Its monitors are detached and stay their owner's; its tokens end with it."""
    caller.require_session()
    with transaction.atomic():
        access.hold_project(caller, public_id, roles=[Role.OWNER], for_deletion=True).delete()
