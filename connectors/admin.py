from __future__ import annotations

from django.contrib import admin

from connectors.models import Connector, Import
from monitors.admin import ReadOnlyAdmin


@admin.register(Connector)
class ConnectorAdmin(ReadOnlyAdmin[Connector]):
    """The tokens are in no form."""

    list_display = ("user", "provider", "meta", "created_at", "revoked_at")
    list_filter = ("provider", ("revoked_at", admin.EmptyFieldListFilter))
    list_select_related = ("user",)
    search_fields = ("user__email", "meta")
    ordering = ("-pk",)


@admin.register(Import)
class ImportAdmin(ReadOnlyAdmin[Import]):
    list_display = ("external_ref", "provider", "user", "monitor")
    list_filter = ("provider",)
    list_select_related = ("user", "monitor")
    search_fields = ("external_ref", "user__email", "monitor__public_id")
    ordering = ("-pk",)
