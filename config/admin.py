"""The admin's own history of changes and actions."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin.models import LogEntry

from core.staff import AutocompleteFilter, ReadOnlyAdmin


@admin.register(LogEntry)
class LogEntryAdmin(ReadOnlyAdmin[LogEntry]):
    list_display = ("action_time", "user", "content_type", "object_repr", "action_flag", "change_message")
    list_filter = ("action_flag", ("user", AutocompleteFilter))
    list_select_related = ("user", "content_type")
    search_fields = ("user__email",)
    fields = (*list_display, "object_id")
