"""Sign in and out, manage project tokens, and resolve Bearer tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import TypeVar

from django.conf import settings
from django.contrib.auth import authenticate
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils.crypto import constant_time_compare

import accounts.services
import audit.services
from accounts import second_factor
from accounts.models import User
from accounts.services import is_verified
from audit.actions import Action
from audit.models import Entry
from core import credentials, errors
from core.bulk import BulkResult
from core.db import get_or_not_found
from core.throttles import count_request
from projects import log
from projects.access import MANAGERS, Caller, accessible_projects, get_project, lock_project
from projects.members import accept_invitations
from projects.models import Role
from tokens.models import Credential, ProjectToken, Session

SESSION_PREFIX = "ses_"
TOKEN_PREFIX = "svc_"  # noqa: S105  (a prefix, not a password)
SESSION_LIFETIME = timedelta(days=14)
DOOR = "api"  # the value in the audit log; sign-ins by pages have "web"
MAX_TOKENS = 500
"""Limit of tokens that an account creates."""
USE_NOTED_EVERY = timedelta(minutes=1)

C = TypeVar("C", bound=Credential)


def sign_in(*, email: str, password: str, now: datetime, code: str | None = None) -> tuple[Session, str]:
    """Return a new session and its plaintext.

    Raises InvalidCredentials, without revealing whether the account exists, and under OIDC_ONLY always. With the right
    password, raises EmailUnverified or MfaRequired if another condition is not met.
    """
    if settings.OIDC_ONLY:
        raise errors.InvalidCredentials("Passwords are turned off here. Create a project token on the dashboard.")
    email = email.strip().lower()
    user = authenticate(email=email, password=password)
    if not isinstance(user, User):
        tried = User.objects.filter(email=email).first()
        audit.services.record_failure(Action.SIGN_IN_FAILED, subject=tried, details={"door": DOOR})
        raise errors.InvalidCredentials
    if not is_verified(user):
        raise errors.EmailUnverified
    if second_factor.is_on(user):
        if not code:
            raise errors.MfaRequired
        count_request("second-factor", f"user:{user.pk}")
        if second_factor.use_code(user, code) is None:
            raise errors.InvalidCredentials("Wrong code, or it was already used.")
    accept_invitations(user, now=now)
    plaintext, columns = credentials.issue(SESSION_PREFIX)
    with transaction.atomic():
        session = Session.objects.create(
            user=user,
            password_hash=user.get_session_auth_hash(),
            **columns,
            created_at=now,
            expires_at=now + SESSION_LIFETIME,
        )
        audit.services.record(Action.SIGN_IN_SUCCEEDED, actor=user, target_id=session.public_id, details={"door": DOOR})
    return session, plaintext


def sign_out(plaintext: str) -> None:
    Session.objects.filter(lookup=credentials.lookup_of(plaintext, prefix=SESSION_PREFIX)).delete()


def follow_password(user: User) -> None:
    """End the sessions of an account whose password changed.

    A concurrent sign-in with the old password creates a session with the old hash, which is worthless.
    """
    Session.objects.filter(user=user).delete()


def list_sessions(caller: Caller, *, now: datetime) -> QuerySet[Session]:
    """Return the unexpired sessions of the API."""
    caller.require_session()
    return Session.objects.filter(user=caller.user, expires_at__gt=now)


def end_session(caller: Caller, public_id: str) -> None:
    caller.require_session()
    with transaction.atomic():
        deleted, _ = Session.objects.filter(user=caller.user, public_id=public_id).delete()
        if not deleted:
            raise errors.NotFound
        log.record(caller, Action.SESSION_REVOKED, target_id=public_id, details={"door": DOOR})


def end_sessions(user: User) -> int:
    """End all sessions of the API and return their number."""
    with transaction.atomic():
        ended = Session.objects.filter(user=user).delete()[0]
        if ended:
            audit.services.record(Action.SESSION_REVOKED, actor=user, details={"door": DOOR, "sessions": ended})
    return ended


def end_sessions_by_key(ids: Collection[int]) -> BulkResult[Session]:
    """End sessions of any account, for operators."""
    return _delete(
        Session.objects.select_related("user"),
        ids,
        lambda session: audit.services.draft(
            Action.SESSION_REVOKED, actor=session.user, target_id=session.public_id, details={"door": DOOR}
        ),
    )


def delete_expired_sessions(now: datetime) -> int:
    return Session.objects.filter(expires_at__lte=now).delete()[0]


def delete_account(caller: Caller, *, password: str) -> None:
    """Delete the account. Raises ValidationFailed, or ProjectsShared if its projects have other members."""
    caller.require_session()
    if not caller.user.check_password(password):
        raise errors.ValidationFailed("is not the password of this account.", field="password")
    accounts.services.delete_account(caller.user)


def create_token(
    caller: Caller,
    *,
    project_id: str,
    name: str,
    access: str = ProjectToken.Access.WRITE,
    ttl_seconds: int | None = None,
    now: datetime,
) -> tuple[ProjectToken, str]:
    caller.require_session()
    plaintext, columns = credentials.issue(TOKEN_PREFIX)
    with transaction.atomic():
        try:
            project = lock_project(caller, project_id)
        except errors.NotFound:
            raise errors.ProjectForbidden from None
        User.objects.select_for_update(no_key=True).get(pk=caller.user.pk)  # concurrent creations count each other
        if ProjectToken.objects.filter(created_by=caller.user).count() >= MAX_TOKENS:
            raise errors.LimitReached("The limit of tokens per account is reached.", limit=MAX_TOKENS)
        token = ProjectToken.objects.create(
            project=project,
            created_by=caller.user,
            name=name,
            access=access,
            **columns,
            created_at=now,
            expires_at=None if ttl_seconds is None else now + timedelta(seconds=ttl_seconds),
        )
        _record(caller, Action.TOKEN_CREATED, token)
    return token, plaintext


def list_tokens(caller: Caller) -> QuerySet[ProjectToken]:
    return ProjectToken.objects.filter(project__in=accessible_projects(caller)).select_related("project")


def revoke_token(caller: Caller, public_id: str) -> None:
    """Revoke a token. Owners and admins may revoke any token of the project, members only their own."""
    caller.require_session()
    token = get_or_not_found(list_tokens(caller), public_id=public_id)
    if token.created_by_id != caller.user.pk:
        get_project(caller, token.project.public_id, roles=MANAGERS)
    with transaction.atomic():
        deleted, _ = ProjectToken.objects.filter(pk=token.pk).delete()
        if not deleted:
            raise errors.NotFound
        _record(caller, Action.TOKEN_REVOKED, token)


def _record(caller: Caller, action: Action, token: ProjectToken) -> None:
    log.record(
        caller,
        action,
        project=token.project,
        target_id=token.public_id,
        target_name=token.name,
        details={"access": token.access} if token.access == ProjectToken.Access.READ else {},
    )


def revoke_tokens_by_key(ids: Collection[int]) -> BulkResult[ProjectToken]:
    """Revoke tokens of any project, for operators."""
    return _delete(
        ProjectToken.objects.select_related("project", "created_by"),
        ids,
        lambda token: audit.services.draft(
            Action.TOKEN_REVOKED,
            actor=token.created_by,
            project=token.project,
            target_id=token.public_id,
            target_name=token.name,
        ),
    )


def _delete(rows: QuerySet[C], ids: Collection[int], entry: Callable[[C], Entry]) -> BulkResult[C]:
    """Delete rows with an entry in the audit log for each. Concurrent calls delete and record each row once."""
    with transaction.atomic():
        locked = list(rows.select_for_update(of=["self"]).filter(pk__in=ids).order_by("pk"))
        rows.model._default_manager.filter(pk__in=[row.pk for row in locked]).delete()
        audit.services.record_all(map(entry, locked))
    return BulkResult(locked)


def caller_for(plaintext: str, *, now: datetime) -> Caller | None:
    """Return the caller of a Bearer token, or None if it is invalid or expired, or if its user is inactive."""
    session = _find(Session.objects.select_related("user__plan"), plaintext, prefix=SESSION_PREFIX, now=now)
    if session is not None:
        unchanged = constant_time_compare(session.password_hash, session.user.get_session_auth_hash())
        if not (session.user.is_active and unchanged):
            return None
        return Caller(session.user, signed_in_at=session.created_at)
    token = _find(
        # Removing a member deletes their tokens; if one remains, it grants nothing.
        ProjectToken.objects.filter(project__memberships__user=F("created_by"))
        .annotate(creators_role=F("project__memberships__role"))
        .select_related("created_by__plan", "project"),
        plaintext,
        prefix=TOKEN_PREFIX,
        now=now,
    )
    if token is not None and token.created_by.is_active:
        role: str = getattr(token, "creators_role")  # noqa: B009  (an annotation, unknown to mypy)
        is_viewer = role == Role.VIEWER
        is_read_only = is_viewer or token.access == ProjectToken.Access.READ
        return Caller(token.created_by, token.project, is_read_only=is_read_only, is_viewer=is_viewer)
    return None


def _find(rows: QuerySet[C], plaintext: str, *, prefix: str, now: datetime) -> C | None:
    found = credentials.find(rows, plaintext, prefix=prefix)
    if found is None:
        return None
    if found.expires_at is not None and found.expires_at <= now:
        return None
    # Store the time of use at most once a minute. The WHERE clause decides between concurrent requests.
    before = now - USE_NOTED_EVERY
    if found.last_used_at is None or found.last_used_at <= before:
        stale = Q(last_used_at=None) | Q(last_used_at__lte=before)
        rows.model._default_manager.filter(stale, pk=found.pk).update(last_used_at=now)
    return found
