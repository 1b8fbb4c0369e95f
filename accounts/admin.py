from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allauth.account.adapter import get_adapter
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.forms import AdminPasswordChangeForm
from django.contrib.auth.models import Group
from django.db.models import Count, F, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

import audit.services
from accounts.models import Plan, User
from accounts.services import change_plan, record_changes, set_address, set_password, welcome
from core.staff import Section, StaffAdmin, act, ask

_RIGHTS = ("is_active", "is_staff", "is_superuser", "groups", "user_permissions")
MAX_MEMBERSHIPS = 50
MAX_ENTRIES = 10


@admin.register(Plan)
class PlanAdmin(StaffAdmin[Plan]):
    """Plans. Changes apply to later creations and changes of monitors. A plan in use cannot be deleted."""

    list_display = ("name", "min_interval_sec", "default_interval_sec", "monitor_limit", "location_limit")
    search_fields = ("name",)

    def has_delete_permission(self, request: HttpRequest, obj: Plan | None = None) -> bool:
        if obj is None or User.objects.filter(plan=obj).exists():
            return False
        return super().has_delete_permission(request, obj)


class PlanForm(forms.Form):
    plan = forms.ModelChoiceField(
        Plan.objects.all(),
        help_text="Intervals below its minimum are raised, permanently. Monitors beyond its limit stay, but none can "
        "be added.",
    )


class PasswordForm(AdminPasswordChangeForm):  # type: ignore[type-arg]  # (of the stubs alone)
    """Set the password as a reset does: record it, end all sessions, and send a mail."""

    def set_password_and_save(self, user: Any, **options: Any) -> Any:
        is_usable = self.cleaned_data["set_usable_password"]
        set_password(user, self.cleaned_data["password1"] if is_usable else None)
        get_adapter().send_mail("account/email/password_by_staff", user.email, {})
        return user


@admin.register(User)
class AccountAdmin(StaffAdmin[User], UserAdmin[User]):
    """Accounts. Only superusers change rights, and accounts that have rights: otherwise staff could take them over.

    Accounts are deleted on their own page, which checks shared projects first.
    """

    list_display = ("email", "plan", "is_staff", "is_active", "created_at")
    list_filter = ("plan", "is_staff", "is_active")
    list_select_related = ("plan",)
    ordering = ("-pk",)
    search_fields = ("email", "public_id")
    readonly_fields = ("public_id", "created_at", "last_login", "password_set", "staff_from_groups")
    fieldsets = (
        (None, {"fields": ("public_id", "email", "password_set", "plan")}),
        ("Rights", {"fields": (*_RIGHTS, "staff_from_groups")}),
        ("Times", {"fields": ("created_at", "last_login")}),
    )
    add_fieldsets = ((None, {"fields": ("email", "plan", "usable_password", "password1", "password2")}),)
    actions = ("put_on_plan",)
    change_password_form = PasswordForm

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        if obj is not None and (obj.is_staff or obj.is_superuser) and not _is_superuser(request):
            return False
        return super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return False

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> tuple[str, ...]:
        """Return the read-only fields. Users change their own address on their account page."""
        rights = () if _is_superuser(request) else _RIGHTS[1:]
        own = ("email",) if obj == request.user else ()
        return (*self.readonly_fields, *rights, *own)

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:  # noqa: A002
        if id == str(request.user.pk):
            return redirect("account_change_password")
        return super().user_change_password(request, id, form_url)

    @admin.display(description="password")
    def password_set(self, user: User) -> SafeString | str:
        """Return whether a password is set, and nothing of its hash."""
        link = reverse("admin:auth_user_password_change", args=[user.pk])
        return format_html('{} (<a href="{}">set another</a>)', "set" if user.has_usable_password() else "none", link)

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:  # noqa: FBT001
        """Save the account, in the transaction that the admin opens. An address that staff enter counts as verified."""
        if not change:
            super().save_model(request, obj, form, change)
            set_address(obj)
            welcome(obj)
            return
        changed = set(form.changed_data)
        before = User.objects.select_for_update(of=["self"]).get(pk=obj.pk)
        columns = [each.name for each in User._meta.concrete_fields if each.name in changed - {"plan"}]
        if columns:
            obj.save(update_fields=columns)  # keep concurrent changes of other columns
        if "email" in changed:
            set_address(obj)
        if "plan" in changed:
            change_plan([obj.pk], obj.plan)
        record_changes(before, obj, rights=sorted(changed & set(_RIGHTS)))

    @admin.action(description="Change the plan", permissions=["change"])
    def put_on_plan(self, request: HttpRequest, queryset: QuerySet[User]) -> HttpResponse | None:
        form = ask(self, request, queryset, PlanForm, title="Change the plan", button="Change the plan")
        if not isinstance(form, PlanForm):
            return form
        plan: Plan = form.cleaned_data["plan"]
        outcome = act(self, request, queryset, lambda ids: change_plan(ids, plan), done=f"moved to plan {plan}")
        over = _over_limit(() if outcome is None else outcome.done)
        if over:
            text = f"Over the limit of {plan.monitor_limit} monitors of plan {plan}: {over}. Their monitors stay."
            self.message_user(request, text, messages.WARNING)
        return None

    def sections(self, request: HttpRequest, row: User) -> Sequence[Section]:
        # Uses reverse relations of projects and monitors, which are higher layers.
        members = row.memberships.select_related("project").order_by("-pk")[:MAX_MEMBERSHIPS]
        return (
            Section("Usage", ("Monitors", "Limit"), [(row.monitors.count(), row.plan.monitor_limit or "none")]),
            Section("Projects", ("Project", "Role"), [(member.project.name, member.role) for member in members]),
            Section(
                "Audit log",
                ("At", "Action", "By", "What"),
                [
                    (entry.at, entry.action, entry.actor_email or entry.actor_type, entry.target_name)
                    for entry in audit.services.of_person(row.pk).order_by("-pk")[:MAX_ENTRIES]
                ],
                more=f"{reverse('admin:audit_entry_changelist')}?{urlencode({'q': row.public_id})}",
            ),
        )


def _is_superuser(request: HttpRequest) -> bool:
    return bool(request.user.is_superuser)


def _over_limit(users: Sequence[User]) -> int:
    counted = User.objects.filter(pk__in=[user.pk for user in users]).annotate(used=Count("monitors"))
    return counted.filter(used__gt=F("plan__monitor_limit")).count()


admin.site.unregister(Group)


@admin.register(Group)
class RightsAdmin(StaffAdmin[Group], GroupAdmin):
    """Groups. For superusers only: changing a group that you are in would give you any right."""

    search_fields = ("name",)

    def has_change_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return _is_superuser(request)

    has_add_permission = has_delete_permission = has_change_permission
