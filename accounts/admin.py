from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.http import HttpRequest

from accounts.models import Plan, User
from accounts.services import welcome
from accounts.verification import set_address


@admin.register(Plan)
class PlanAdmin(admin.ModelAdmin[Plan]):
    list_display = ("name", "min_interval_sec", "monitor_limit")


@admin.register(User)
class AccountAdmin(UserAdmin[User]):
    ordering = ("pk",)
    list_display = ("email", "plan", "is_staff", "is_active", "created_at")
    list_filter = ("plan", "is_staff", "is_active")
    search_fields = ("email", "public_id")
    readonly_fields = ("public_id", "created_at", "last_login")
    fieldsets = (
        (None, {"fields": ("public_id", "email", "password", "plan")}),
        ("Rights", {"fields": ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")}),
        ("Times", {"fields": ("created_at", "last_login")}),
    )
    add_fieldsets = ((None, {"fields": ("email", "plan", "usable_password", "password1", "password2")}),)

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:  # noqa: FBT001
        """In the transaction that the admin opens for each form. An address that staff enters counts as verified."""
        super().save_model(request, obj, form, change)
        if "email" in form.changed_data:
            set_address(obj, verified=True)
        if not change:
            welcome(obj)
