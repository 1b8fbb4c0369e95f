"""Connectors as the API takes and gives them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework import serializers

from connectors.models import Connector
from core.api.fields import EpochMsField, ListField, StrictSerializer, TextField
from monitors.serializers import MonitorSerializer

MAX_REFS = 1000


class ConnectorSerializer(serializers.Serializer[Any]):
    """A linked account at a provider. Its tokens are encrypted and never returned."""

    provider = serializers.SerializerMethodField(help_text="Name of the provider in URLs.")
    created_at = EpochMsField()
    meta = serializers.CharField(allow_null=True, help_text="The name of the account at the provider.")
    reconnect_required = serializers.SerializerMethodField(
        help_text="The provider no longer accepts the authorization; link it again."
    )

    def get_provider(self, connector: Connector) -> str:
        return next(word for word, name in settings.CONNECTORS.items() if name == connector.provider)

    def get_reconnect_required(self, connector: Connector) -> bool:
        return connector.revoked_at is not None


class AuthorizeSerializer(serializers.Serializer[Any]):
    authorize_url = serializers.CharField(help_text="Open it in a browser within 10 minutes.")


class ImportableProjectSerializer(serializers.Serializer[Any]):
    """A project at a provider."""

    external_ref = serializers.CharField()
    name = serializers.CharField()
    url = serializers.CharField(help_text="Empty if the project has no URL.")
    already_imported = serializers.BooleanField()


class ImportableProjectsSerializer(serializers.Serializer[Any]):
    projects = ImportableProjectSerializer(many=True)


class ImportInputSerializer(StrictSerializer):
    external_refs = ListField(child=TextField(), allow_empty=False, max_length=MAX_REFS)
    project_id = TextField(required=False, allow_null=True, max_length=64)


class ImportFailureSerializer(serializers.Serializer[Any]):
    external_ref = serializers.CharField()
    error = serializers.CharField(help_text="monitor_limit, not_found, or a sentence about what is wrong with the URL.")


class ImportResultSerializer(serializers.Serializer[Any]):
    """The result of an import, each list in the order of the request."""

    created = MonitorSerializer(many=True)
    skipped = serializers.ListField(child=serializers.CharField(), help_text="References that were already imported.")
    failed = ImportFailureSerializer(many=True)
