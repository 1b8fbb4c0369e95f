"""Members of a project: add, invite, change roles, remove, leave.

Every change locks the project's row, as creating tokens and deleting the project do. So no membership is created twice,
and nothing is created on behalf of a person who is being removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils.crypto import salted_hmac

from accounts.models import User
from accounts.services import email_address, is_verified, verified_account
from audit.actions import Action
from core.db import get_or_not_found
from core.errors import LimitReached, NotFound, ValidationFailed
from core.ids import random_text
from core.mail import send_on_commit
from core.text import one_line
from projects import access, log
from projects.access import Caller
from projects.models import Membership, Project, Role

logger = logging.getLogger(__name__)

MAX_MEMBERS = 200
"""Limit of members of a project, including open invitations."""
INVITATION_LIFETIME = timedelta(days=14)
INVITED = "invited_email"
"""Session key: the address of an invitation whose copied link was opened."""

_INVITATION = """\
{by} invites you to the project "{project}" on Pulsekeeper, as {role}.

{base_url}/invitations/{token}

Open the link within 14 days, and sign up with this e-mail address, or sign in: you then have access to the project. If
you did not expect an invitation, ignore this message.
"""

on_member_gone: list[Callable[[Project, User], None]] = []
"""Callbacks of higher layers when a member left or was removed, in that transaction and with the project locked."""


def list_members(caller: Caller, project_id: str, *, now: datetime) -> QuerySet[Membership]:
    """Return members and open invitations; expired invitations are left out."""
    caller.require_session()
    project = access.get_project(caller, project_id)
    return _living(project, now=now).select_related("user")


def _living(project: Project, *, now: datetime) -> QuerySet[Membership]:
    return Membership.objects.filter(Q(user__isnull=False) | Q(invited_until__gt=now), project=project)


def add_member(caller: Caller, project_id: str, *, email: str, role: str, now: datetime) -> Membership:
    """Add an account with this verified address as a member, or send an invitation by e-mail.

    An account with an unverified address is invited too, because anyone could have signed up with it. The response
    reveals to managers whether an account exists, which the API specifies; `InviteThrottle` limits how many addresses
    they can try.
    """
    caller.require_session()
    email = email_address(email)
    with transaction.atomic():
        project = access.lock_project(caller, project_id, roles=access.MANAGERS)
        if access.owner_of(project).deletion_began_at is not None:  # the project is deleted in the last step
            raise NotFound
        places = Membership.objects.filter(project=project)
        places.filter(user=None, invited_until__lte=now).delete()
        user = verified_account(email)
        if places.exclude(invited_email=email).count() >= MAX_MEMBERS:
            raise LimitReached("The limit of members and invitations per project is reached.", limit=MAX_MEMBERS)
        if user is None:
            return _invite(caller, project, email=email, role=role, now=now)
        # The account may be younger than its invitation, which the membership replaces. Delete the invitation first:
        # this waits for a concurrent sign-in that accepts it, so that the check below sees the membership.
        places.filter(invited_email=email).delete()
        if places.filter(user=user).exists():
            raise ValidationFailed("is already a member.", field="email")
        member = Membership.objects.create(project=project, user=user, role=role, created_at=now)
        log.record_of_member(caller.user, Action.MEMBER_ADDED, member)
    return member


def _invite(caller: Caller, project: Project, *, email: str, role: str, now: datetime) -> Membership:
    if Membership.objects.filter(project=project, invited_email=email).exists():
        raise ValidationFailed("is already invited; remove the invitation to send another.", field="email")
    token = random_text(32)
    invitation = Membership.objects.create(
        project=project,
        role=role,
        created_at=now,
        invited_email=email,
        invited_by=caller.user,
        invitation_digest=_digest(token),
        invited_until=now + INVITATION_LIFETIME,
    )
    log.record_of_member(caller.user, Action.MEMBER_INVITED, invitation)
    by, name = caller.user.email, one_line(project.name)
    text = _INVITATION.format(by=by, project=name, role=role, base_url=settings.BASE_URL, token=token)
    send_on_commit("An invitation to a project on Pulsekeeper", text, to=email, account=caller.account)
    return invitation


def _digest(token: str) -> bytes:
    return salted_hmac("pulsekeeper.invitations", token, algorithm="sha256").digest()


def find_invitation(token: str, *, now: datetime) -> tuple[Membership, bool]:
    """Return the open invitation of a link, and whether the link is the one that was mailed.

    The mailed link proves that its user owns the address. The link that managers copy contains the id of the invitation
    instead, and proves nothing: managers could otherwise sign up with any address.
    """
    invitations = Membership.objects.filter(user=None, invited_until__gt=now).select_related("project", "invited_by")
    found = get_or_not_found(invitations.filter(Q(invitation_digest=_digest(token)) | Q(public_id=token)))
    return found, found.public_id != token


def invitation_link(invitation: Membership) -> str:
    """Return the link that managers may copy and pass on."""
    return f"{settings.BASE_URL}/invitations/{invitation.public_id}"


def is_invited(email: str, *, now: datetime) -> bool:
    """Return whether an invitation for the address, in lower case, is open."""
    return Membership.objects.filter(user=None, invited_email=email, invited_until__gt=now).exists()


def accept_invitations(user: User, *, now: datetime) -> int:
    """Turn open invitations for the user's address into memberships, and return their number.

    Called at sign-in, the first moment at which a new account can act, because accounts cannot import projects. Does
    nothing for unverified addresses.
    """
    if not is_verified(user):
        return 0
    member_already = Membership.objects.filter(project=OuterRef("project"), user=user)
    try:
        # A savepoint, because a manager may add the same person concurrently.
        with transaction.atomic():
            # Locked, so that none is withdrawn between these two statements.
            invitations = Membership.objects.filter(
                ~Exists(member_already), user=None, invited_email=user.email, invited_until__gt=now
            )
            taken = list(invitations.select_for_update(of=["self"]).select_related("project").order_by("pk"))
            if taken:
                Membership.objects.filter(pk__in=[place.pk for place in taken]).update(
                    user=user, created_at=now, invited_email=None, invitation_digest=None, invited_until=None
                )
            for place in taken:
                place.user = user
                log.record_of_member(user, Action.MEMBER_JOINED, place)
            return len(taken)
    except IntegrityError:
        logger.info("invitations of user %s will be accepted at the next sign-in", user.public_id)
        return 0


def get_member(project: Project, member_id: str, *, now: datetime) -> Membership:
    """Return a member or an open invitation. Raises NotFound."""
    return get_or_not_found(_living(project, now=now).select_related("user", "project"), public_id=member_id)


def change_role(caller: Caller, project_id: str, member_id: str, *, role: str, now: datetime) -> Membership:
    caller.require_session()
    with transaction.atomic():
        project = access.lock_project(caller, project_id, roles=access.MANAGERS)
        member = get_member(project, member_id, now=now)
        if member.role == Role.OWNER:
            raise ValidationFailed("the role of a project's owner cannot be changed.", field="role")
        before, member.role = member.role, role
        member.save(update_fields=["role"])
        log.record_of_member(caller.user, Action.MEMBER_UPDATED, member, before=before)
    return member


def remove_member(caller: Caller, project_id: str, member_id: str, *, now: datetime) -> None:
    """Remove a member, and at once also the project tokens that the member created. Members may remove themselves."""
    caller.require_session()
    with transaction.atomic():
        project = access.lock_project(caller, project_id, roles=access.EVERY_ROLE)
        member = get_member(project, member_id, now=now)
        if member.user_id != caller.user.pk:
            access.get_project(caller, project_id, roles=access.MANAGERS)
        if member.role == Role.OWNER:
            raise ValidationFailed("the owner of a project cannot be removed; delete the project instead.")
        if member.is_open:
            action = Action.INVITATION_REVOKED
        else:
            action = Action.MEMBER_LEFT if member.user_id == caller.user.pk else Action.MEMBER_REMOVED
        log.record_of_member(caller.user, action, member)
        end_membership(member)


def end_membership(member: Membership) -> None:
    """Delete the row of a member or an invitation. The caller has locked the project."""
    if member.user_id is not None:
        # Uses the reverse relation of tokens, a higher layer.
        member.project.tokens.filter(created_by=member.user_id).delete()
    member.delete()
    if member.user is not None:
        for follow in on_member_gone:
            follow(member.project, member.user)
