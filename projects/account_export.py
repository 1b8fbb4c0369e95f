from __future__ import annotations

from datetime import datetime

from django.db.models import Q, QuerySet

from accounts.export import Sections, rows_of, serialized
from accounts.models import User
from core.clock import to_ms
from projects import log
from projects.access import Caller
from projects.models import Membership, Role
from projects.serializers import AuditEntrySerializer, MemberSerializer


def sections(user: User, *, now: datetime) -> Sections:
    own_projects = Membership.objects.filter(user=user, role=Role.OWNER).values("project")
    return {
        "memberships": lambda: rows_of(
            _members(Q(user=user)),
            lambda member: {
                "project_id": member.project.public_id,
                "project": member.project.name,
                "role": member.role,
                "since": to_ms(member.created_at),
            },
        ),
        "members_of_own_projects": lambda: rows_of(
            _members(Q(project__in=own_projects)),
            lambda member: {"project_id": member.project.public_id, **MemberSerializer(member).data},
        ),
        "audit_log": lambda: serialized(log.of_account(Caller(user)), AuditEntrySerializer, context={"viewer": user}),
    }


def _members(condition: Q) -> QuerySet[Membership]:
    return Membership.objects.filter(condition).select_related("project", "user")
