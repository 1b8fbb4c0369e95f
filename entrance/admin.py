"""Second factors, for staff that takes one away from somebody who has lost it. What they hold is shown to nobody."""

from __future__ import annotations

from typing import Any

import allauth.mfa.admin  # noqa: F401  (registers what is replaced here)
from allauth.mfa.models import Authenticator
from django.contrib import admin
from django.http import HttpRequest

admin.site.unregister(Authenticator)


@admin.register(Authenticator)
class AuthenticatorAdmin(admin.ModelAdmin[Authenticator]):
    list_display = ("user", "type", "created_at", "last_used_at")
    list_select_related = ("user",)
    search_fields = ("user__email",)
    fields = list_display

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
