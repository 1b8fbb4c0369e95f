"""Errors of the API. `code` is the stable word in `error`, `reason` a sentence that names the field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from core.registry import NameTakenError


class ApiError(Exception):
    """Base of every error with an Error body, and that of crashes."""

    status = 500
    code = "internal_error"
    reason = "Internal error. It has been logged."
    details: Mapping[str, Any] = {}
    """Further members of the body."""
    limit: int | None = None
    """The limit that was reached, if any. That of a class is for the example in openapi.json."""
    wait: float | None = None
    """Seconds until a retry may succeed, where that is known."""

    _classes: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, *, status: int | None = None, code: str | None = None) -> None:
        name = f"{cls.__module__}.{cls.__qualname__}"
        if code is not None and (other := cls._classes.setdefault(code, name)) != name:
            raise NameTakenError(f"{name} and {other} both have the code {code!r}.")
        cls.status, cls.code = status or cls.status, code or cls.code

    def __init__(self, reason: str | None = None, *, limit: int | None = None) -> None:
        self.reason = reason or self.reason
        self.limit = limit
        super().__init__(self.reason)

    @property
    def headers(self) -> dict[str, str]:
        """The response's headers, those of a page as well."""
        if self.wait is not None:
            return {"Retry-After": str(max(1, math.ceil(self.wait)))}
        return {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}


class ValidationFailed(ApiError, status=422, code="validation_error"):
    """The request is not valid. `field` is the top-level field of the body that is wrong, if it is one."""

    def __init__(self, reason: str, *, field: str | None = None, limit: int | None = None) -> None:
        self.field = field
        super().__init__(f"{field}: {reason}" if field else reason, limit=limit)


class PrivateAddress(ValidationFailed):
    """The network settings do not allow the address. `advice` says who can change that."""

    def __init__(self, reason: str, *, field: str, advice: str = "") -> None:
        self.bare_reason = reason
        super().__init__(f"{reason} {advice}".rstrip(), field=field)


class BadRequest(ApiError, status=400, code="bad_request"):
    reason = "The request is malformed."


class MethodNotAllowed(ApiError, status=405, code="method_not_allowed"):
    pass


class UnsupportedMediaType(ApiError, status=415, code="unsupported_media_type"):
    reason = "Send application/json."


class BodyTooLarge(ApiError, status=413, code="body_too_large"):
    reason = "The body is larger than allowed."
    limit = 262144


class RequestTimeout(ApiError, status=408, code="request_timeout"):
    reason = "The body did not arrive in time."


class HeadersTooLarge(ApiError, status=431, code="headers_too_large"):
    reason = "The request has too many headers."
    limit = 100


class HttpVersionNotSupported(ApiError, status=505, code="http_version_not_supported"):
    reason = "Send the request with HTTP/1.1."


class Overloaded(ApiError, status=503, code="overloaded"):
    reason = "The server is overloaded; try again in a moment."
    wait = 1


class Unavailable(ApiError, status=503, code="unavailable"):
    reason = "The database does not answer; try again in a moment."
    wait = 5


class HistoryUnavailable(ApiError, status=503, code="history_unavailable"):
    """The history database does not answer. What was recorded in the last hours is in the main one."""

    reason = "The history of checks cannot be read right now; try again in a moment. Checks and alerts go on."
    wait = 5


class NotFound(ApiError, status=404, code="not_found"):
    reason = "Not found."


class Unauthorized(ApiError, status=401, code="unauthorized"):
    reason = "A valid Bearer token is required."


class InvalidCredentials(ApiError, status=401, code="invalid_credentials"):
    reason = "Wrong e-mail address or password."


class EmailUnverified(ApiError, status=403, code="email_unverified"):
    reason = "The e-mail address of this account is not confirmed yet; open the link that was sent to it."


class MfaRequired(ApiError, status=401, code="mfa_required"):
    reason = "code: this account uses two-factor authentication; send a code of the app, or a recovery code."


class Forbidden(ApiError, status=403, code="forbidden"):
    reason = "Your role does not allow this."


class ReadOnly(ApiError, status=403, code="read_only"):
    reason = "Your role, or the access of the token, allows only reading."


class SessionRequired(ApiError, status=403, code="session_required"):
    reason = "Project tokens cannot do this; sign in and use a session token."


class ReauthenticationRequired(ApiError, status=403, code="reauthentication_required"):
    reason = "Sign in again: this requires a session that was created within the last 5 minutes."


class ProjectsShared(ApiError, status=409, code="projects_shared"):
    reason = "Other people are members of projects of this account; remove them, or delete the projects, first."


class ProjectRequired(ApiError, status=400, code="project_required"):
    reason = "project_id: is required; name the project of the token."


class ProjectForbidden(ApiError, status=400, code="project_forbidden"):
    reason = "project_id: project not found, or you are not a member of it."


class TooManyRequests(ApiError, status=429, code="rate_limited"):
    reason = "Too many requests; try again later."

    def __init__(self, reason: str | None = None, *, wait: float | None = None) -> None:
        self.wait = wait or 1
        super().__init__(reason)


class MonitorLimit(ApiError, status=403, code="monitor_limit"):
    reason = "The plan's limit of monitors is reached."
    limit = 50


class LocationLimit(ApiError, status=403, code="location_limit"):
    reason = "The plan's limit of private locations is reached."
    limit = 10


class LocationInUse(ApiError, status=409, code="location_in_use"):
    reason = "Monitors are checked from this location; remove it from their settings first."


class NoAgents(ApiError, status=409, code="no_agents"):
    reason = "Agents cannot join the default location: its checks are made by the workers."


class JoinTokenInvalid(ApiError, status=403, code="join_token_invalid"):
    reason = "token: is unknown."


class AgentOutdated(ApiError, status=409, code="agent_outdated"):
    reason = "The version of the agent's protocol is not accepted."


class MonitorPaused(ApiError, status=409, code="monitor_paused"):
    reason = "The monitor is paused; resume it to check it."


class NoThresholds(ApiError, status=409, code="no_thresholds"):
    reason = "A heartbeat is down when a deadline passes, and not after a number of checks: there is nothing to replay."


class ChannelLimit(ApiError, status=403, code="channel_limit"):
    reason = "The limit of alert channels per account is reached."
    limit = 50


class WindowLimit(ApiError, status=403, code="window_limit"):
    reason = "The limit of maintenance windows is reached; delete those that have ended."
    limit = 100


class LimitReached(ApiError, status=403, code="limit_reached"):
    """A limit on rows that one request reads together, which bounds its cost."""

    reason = "The limit is reached; delete some first."
    limit = 200


class IncidentResolved(ApiError, status=409, code="incident_resolved"):
    reason = "The incident is already resolved."


class NotEscalating(ApiError, status=409, code="not_escalating"):
    reason = "No step of an escalation policy is left for this incident: it has none, is acknowledged, or is resolved."


class LinkExpired(ApiError, status=410, code="link_expired"):
    reason = "This link is over. Sign in to see the incident."


class ResolvesByItself(ApiError, status=409, code="resolves_by_itself"):
    reason = "The incident of a monitor is resolved when the monitor recovers, is paused or is deleted."


class NoWorker(ApiError, status=503, code="no_worker"):
    reason = "No worker ran the check in time; try again in a moment."


class IdempotencyKeyInUse(ApiError, status=409, code="idempotency_key_in_use"):
    reason = "Idempotency-Key: the first request with this key is still being processed; try again in a moment."


class IdempotencyKeySpent(ApiError, status=409, code="idempotency_key_spent"):
    reason = "Idempotency-Key: the object that it created no longer exists, or is no longer yours; use another key."


class ReconnectRequired(ApiError, status=409, code="reconnect_required"):
    reason = "The provider no longer accepts the authorization; link it again with oauth/start."


class ProviderError(ApiError, status=502, code="provider_error"):
    reason = "The provider did not respond correctly; try again in a moment."


class ProviderNotConfigured(ApiError, status=503, code="provider_not_configured"):
    reason = "This deployment has no credentials for the provider; its operator can set them."


class ImportExpired(NotFound):
    reason = "This import does not exist, or its hour is over. Upload the file again."


class NotConfirmed(ApiError, status=409, code="not_confirmed"):
    reason = "The owner of the e-mail address has not confirmed it yet; set the address again to send another request."


class NotDead(ApiError, status=409, code="not_dead"):
    reason = "Only dead deliveries can be replayed; this one was sent, or will be retried."


class StatusPageLimit(ApiError, status=403, code="status_page_limit"):
    reason = "The limit of status pages per account is reached."
    limit = 50


class DomainUnverified(ApiError, status=409, code="domain_unverified"):
    reason = "The TXT record of the domain was not found; create it, and verify the domain again."


class ChangedMeanwhile(ApiError, status=412, code="changed_meanwhile"):
    reason = "The object was changed since you read it. Read it again, then repeat the change."


class NoteResolved(ApiError, status=409, code="note_resolved"):
    reason = "The note is already resolved; create another."
