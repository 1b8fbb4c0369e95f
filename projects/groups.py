"""Memberships that follow the groups of the OpenID provider (docs/adr/0056). Those made by hand are not changed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Q

from accounts.models import User
from accounts.services import is_verified
from audit.actions import Action
from projects import log
from projects.members import MAX_MEMBERS, end_membership
from projects.models import Membership, Project, Role

logger = logging.getLogger(__name__)

GRANTED = tuple(role for role in Role.values if role != Role.OWNER)
"""Roles that groups can give, the highest first."""


def follow_roles(user: User, granted: Iterable[tuple[str, str]], *, now: datetime) -> None:
    """Give the user these roles, as pairs of a project's public id and a role, the highest of several.

    Memberships that came from other groups end. Unknown projects and roles are logged and left out, so that a
    wrong setting prevents no sign-in.
    """
    wanted = _highest(granted)
    own = Membership.objects.filter(user=user)
    with transaction.atomic():
        followed = Q(public_id__in=wanted) | Q(pk__in=own.filter(from_groups=True).values("project"))
        # In key order, as everywhere, to prevent deadlocks.
        projects = list(Project.objects.select_for_update(no_key=True).filter(followed).order_by("pk"))
        places = {place.project_id: place for place in own.filter(project__in=projects)}
        for project in projects:
            role, place = wanted.get(project.public_id), places.get(project.pk)
            if place is None:
                if role is not None:
                    _join(user, project, role, now=now)
            elif place.from_groups and place.role != role:
                place.user, place.project = user, project
                _change(place, role)
    for unknown in sorted(set(wanted) - {project.public_id for project in projects}):
        logger.error("OIDC_PROJECT_ROLES names project %s, which does not exist", unknown)


def _highest(granted: Iterable[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for project, role in granted:
        if role not in GRANTED:
            logger.error("OIDC_PROJECT_ROLES names role %r; groups can give: %s", role, ", ".join(GRANTED))
        elif project not in found or GRANTED.index(role) < GRANTED.index(found[project]):
            found[project] = role
    return found


def _join(user: User, project: Project, role: str, *, now: datetime) -> None:
    places = Membership.objects.filter(project=project)
    if is_verified(user) and places.filter(invited_email=user.email, invited_until__gt=now).exists():
        return  # accepted when this sign-in ends, with the role that a person chose
    if places.count() >= MAX_MEMBERS:
        logger.error("project %s is full: user %s did not become a member", project.public_id, user.public_id)
        return
    try:
        with transaction.atomic():
            place = Membership.objects.create(project=project, user=user, role=role, from_groups=True, created_at=now)
    except IntegrityError:
        return  # another sign-in of the person just accepted an invitation, which takes no lock of the project
    log.record_of_member(user, Action.MEMBER_ADDED, place, by="groups")


def _change(place: Membership, role: str | None) -> None:
    assert place.user is not None
    if role is None:
        log.record_of_member(place.user, Action.MEMBER_REMOVED, place, by="groups")
        end_membership(place)
        return
    before, place.role = place.role, role
    place.save(update_fields=["role"])
    log.record_of_member(place.user, Action.MEMBER_UPDATED, place, before=before, by="groups")
