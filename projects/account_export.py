from __future__ import annotations

from datetime import datetime

from accounts.export import Sections, columns_of, serialized
from accounts.models import User
from projects import log
from projects.access import Caller, owned, owned_projects
from projects.models import Membership
from projects.serializers import AuditEntrySerializer, MemberSerializer


def sections(user: User, *, now: datetime) -> Sections:
    members = Membership.objects.select_related("project", "user").filter(project__in=owned_projects(user))
    return {
        "memberships": columns_of(
            owned(Membership.objects.all(), user),
            project_id="project__public_id",
            project="project__name",
            role="role",
            from_groups="from_groups",
            since="created_at",
        ),
        "members_of_own_projects": serialized(members, MemberSerializer, project_id="project.public_id"),
        "audit_log": serialized(log.of_account(Caller(user)), AuditEntrySerializer, context={"viewer": user}),
    }
