"""Addresses, second factors, web sessions and social accounts. Secrets are not shown."""

from __future__ import annotations

import allauth.account.admin
import allauth.mfa.admin
import allauth.usersessions.admin  # noqa: F401
import social_django.admin  # noqa: F401
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from social_django.models import Association, Nonce, UserSocialAuth

import audit.services
from accounts.services import target
from audit.actions import Action
from core.clock import utc_now
from core.staff import AutocompleteFilter, ReadOnlyAdmin, act
from signin.social.openid import OpenID
from signin.social.pipeline import follow_groups
from signin.web_sessions import end_web_sessions_by_key

admin.site.unregister((Association, Authenticator, EmailAddress, Nonce, UserSession, UserSocialAuth))


@admin.register(EmailAddress)
class EmailAddressAdmin(ReadOnlyAdmin[EmailAddress]):
    """Addresses, and whether they are confirmed. To set another one, change the account."""

    list_display = ("email", "user", "primary", "verified")
    list_filter = ("verified", ("user", AutocompleteFilter))
    list_select_related = ("user",)
    search_fields = ("email", "user__email")
    fields = list_display


@admin.register(Authenticator)
class AuthenticatorAdmin(ReadOnlyAdmin[Authenticator]):
    """Second factors. Staff can delete a lost one, but only superusers that of staff."""

    list_display = ("user", "type", "created_at", "last_used_at")
    list_filter = ("type", ("user", AutocompleteFilter))
    list_select_related = ("user",)
    search_fields = ("user__email",)
    fields = list_display

    def has_delete_permission(self, request: HttpRequest, obj: Authenticator | None = None) -> bool:
        if obj is None:  # no bulk deletion, so that each is reviewed
            return False
        return self.has_revoke_permission(request) and (request.user.is_superuser or not obj.user.is_staff)

    def delete_model(self, request: HttpRequest, obj: Authenticator) -> None:
        """Record and delete the second factor, in the transaction that the admin opens."""
        audit.services.record(Action.SECOND_FACTOR_DISABLED, **target(obj.user), details={"type": obj.type})
        super().delete_model(request, obj)


@admin.register(UserSession)
class BrowserAdmin(ReadOnlyAdmin[UserSession]):
    list_display = ("user", "ip", "user_agent", "created_at", "last_seen_at")
    list_filter = (("user", AutocompleteFilter),)
    list_select_related = ("user",)
    search_fields = ("user__email",)
    fields = list_display
    actions = ("end",)

    @admin.action(description="End", permissions=["revoke"])
    def end(self, request: HttpRequest, queryset: QuerySet[UserSession]) -> None:
        act(
            self, request, queryset, end_web_sessions_by_key, done="ended", gone=True,
            named=lambda row: f"a browser of {row.user.public_id}",
        )  # fmt: skip


@admin.register(UserSocialAuth)
class SocialAccountAdmin(ReadOnlyAdmin[UserSocialAuth]):
    """Identities at other providers. Staff can delete one, for example of a person whom the provider created again."""

    list_display = ("provider", "uid", "user", "created")
    list_filter = (("user", AutocompleteFilter),)
    list_select_related = ("user",)
    search_fields = ("user__email",)
    fields = list_display

    def has_delete_permission(self, request: HttpRequest, obj: UserSocialAuth | None = None) -> bool:
        if obj is None:  # no bulk deletion, so that each is reviewed
            return False
        return self.has_revoke_permission(request) and (request.user.is_superuser or not obj.user.is_staff)

    def delete_model(self, request: HttpRequest, obj: UserSocialAuth) -> None:
        """Record and delete the identity, and end what its groups gave, in the transaction that the admin opens."""
        audit.services.record(Action.SOCIAL_ACCOUNT_UNLINKED, **target(obj.user), details={"provider": obj.provider})
        super().delete_model(request, obj)
        if obj.provider == OpenID.name:
            follow_groups(obj.user, (), now=utc_now())
