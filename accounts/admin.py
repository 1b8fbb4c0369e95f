from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin

from accounts.models import Plan, User


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
