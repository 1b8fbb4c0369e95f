"""The account as a manifest, and imports from other products, for the `pulsekeeper` command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer

from alerts.serializers import KindField
from core.api.fields import BoolField, ListField, StrictSerializer, TextField
from core.api.query import ChoiceParam, IdParam, json_pieces, stream, take_place
from core.api.viewsets import ServiceViewSet, operation
from core.errors import MonitorLimit, ValidationFailed
from core.throttles import ManifestThrottle
from core.waiting import PATIENCE_SEC, limit_waiting
from manifests.applying import apply
from manifests.exporting import Export
from manifests.importing import import_monitors
from manifests.parsing import Manifest
from manifests.serializers import SECTIONS
from manifests.upload_reader import MAX_CHANNELS
from monitors import types
from monitors.types.settings import MAX_NAME
from pulsekeeper.importers.mapped import MAX_CHANNELS as MAX_OF_MONITOR
from pulsekeeper.importers.mapped import Imported, MappedChannel, MappedFile, MappedMonitor, Outcome
from pulsekeeper.manifest.changes import ACTIONS, MAX_BODY, Report
from pulsekeeper.manifest.problems import Document, InvalidManifest
from pulsekeeper.manifest.secrets import MAX_VARIABLES

MAX_ENTRIES = 2_000
MAX_VALUE = 10_000


class ProblemSerializer(serializers.Serializer[Any]):
    """What is wrong with a manifest, and where."""

    path = serializers.CharField(help_text="Path of the value, like monitors[12].interval_sec; empty: the manifest.")
    message = serializers.CharField()
    at_key = serializers.BooleanField(required=False, help_text="true: the key is wrong, not its value.")


class InvalidManifestFailure(ValidationFailed):
    """The manifest has problems. `reason` is the first one, `problems` are all."""

    def __init__(self, error: InvalidManifest) -> None:
        first = error.problems[0]
        super().__init__(f"{first.path}: {first.message}" if first.path else first.message)
        self.details = {"problems": ProblemSerializer(error.problems, many=True).data}


class ApplySerializer(StrictSerializer):
    """A manifest to apply."""

    manifest: Any = serializers.DictField(help_text="As docs/samples/pulsekeeper.schema.json describes it.")
    variables: Any = serializers.DictField(
        child=TextField(max_length=MAX_VALUE, allow_blank=True),
        required=False,
        help_text="Values of the placeholders ${PK_NAME} and ${keep:PK_NAME}, by name.",
    )
    prune = BoolField(required=False, help_text="Delete what the manifest owns but does not list. Default: false.")
    dry_run = BoolField(required=False, help_text="Change nothing, and return what would change. Default: false.")

    def validate_manifest(self, manifest: dict[str, Any]) -> dict[str, Any]:
        for section in SECTIONS:
            if isinstance(entries := manifest.get(section), list) and len(entries) > MAX_ENTRIES:
                raise serializers.ValidationError(f"{section}: at most {MAX_ENTRIES} entries are accepted.")
        return manifest

    def validate_variables(self, variables: dict[str, str]) -> dict[str, str]:
        if len(variables) > MAX_VARIABLES:
            raise serializers.ValidationError(f"at most {MAX_VARIABLES} variables are accepted.")
        return variables


class FieldChangeSerializer(serializers.Serializer[Any]):
    field = serializers.CharField()
    before = serializers.CharField(allow_null=True, help_text="As text, without secrets; null: none.")
    after = serializers.CharField(allow_null=True)


class ChangeSerializer(serializers.Serializer[Any]):
    """A change of one object."""

    action = serializers.ChoiceField(choices=ACTIONS)
    kind = serializers.CharField()
    name = serializers.CharField()
    project = serializers.CharField(allow_null=True)
    path = serializers.CharField(allow_null=True, help_text="Path of its entry in the manifest; null without one.")

    def get_fields(self) -> dict[str, Any]:
        return {**super().get_fields(), "fields": FieldChangeSerializer(many=True)}


class ReportSerializer(serializers.Serializer[Any]):
    """The changes that were made or, with `dry_run`, would be."""

    applied = serializers.BooleanField()
    created = serializers.IntegerField()
    changed = serializers.IntegerField()
    deleted = serializers.IntegerField()
    unmentioned = serializers.IntegerField(help_text="How many objects `prune` would delete.")
    first_checks = serializers.IntegerField(help_text="How many first checks run with the scheduler's next tick.")
    changes = ChangeSerializer(many=True)
    notes = ProblemSerializer(many=True)


class ImportedItemSerializer(StrictSerializer):
    """A monitor to import."""

    name = TextField(max_length=MAX_NAME, help_text="Identifies it in the response.")
    body: Any = serializers.DictField(help_text="As in POST /v1/monitors. One that is invalid is skipped, with a note.")
    enabled = BoolField(required=False, help_text="false: create it paused. Default: true.")
    group = TextField(
        required=False,
        allow_blank=True,
        max_length=MAX_NAME,
        help_text="Its group in the source: a project of the caller with this name, or a new one. Ignored with "
        "project_id and with a project token.",
    )
    channels = ListField(
        child=TextField(max_length=MAX_NAME),
        required=False,
        max_length=MAX_OF_MONITOR,
        help_text="The keys of the channels to notify of it.",
    )


class ImportedChannelSerializer(StrictSerializer):
    """An alert channel to import."""

    key = TextField(max_length=MAX_NAME, help_text="By which monitors name it.")
    name = TextField(max_length=MAX_NAME, help_text="Identifies it in the response.")
    body: Any = serializers.DictField(
        help_text="As in POST /v1/alert-channels, without monitors. One that is invalid is skipped, with a note."
    )
    enabled = BoolField(required=False, help_text="false: nothing is sent. Default: true.")


class ImportSerializer(StrictSerializer):
    """Monitors to import, and the alert channels that they notify."""

    monitors = ListField(child=ImportedItemSerializer(), max_length=MAX_ENTRIES)
    channels = ListField(
        child=ImportedChannelSerializer(),
        required=False,
        max_length=MAX_CHANNELS,
        help_text="Created if a created monitor names them. One with the same settings exists already: it chooses the "
        "created monitors too.",
    )
    project_id = TextField(required=False, allow_null=True, max_length=64)
    dry_run = BoolField(required=False, help_text="Create nothing, and return what would be created. Default: false.")


class ImportNoteSerializer(serializers.Serializer[Any]):
    """A field that was changed or is the reason for skipping."""

    field = serializers.CharField()
    text = serializers.CharField()


class CreatedMonitorSerializer(serializers.Serializer[Any]):
    """A created monitor; in a dry run without `id` and `ping_url`."""

    id = serializers.CharField(allow_null=True)
    type = serializers.ChoiceField(choices=types.names())
    url = serializers.CharField(allow_blank=True)
    interval_sec = serializers.IntegerField()
    schedule = serializers.CharField(allow_null=True)
    timezone = serializers.CharField(allow_null=True)
    ping_url = serializers.CharField(allow_null=True)


class CreatedChannelSerializer(serializers.Serializer[Any]):
    """A created or existing channel; `id` is null if a dry run would create it."""

    id = serializers.CharField(allow_null=True)
    kind = KindField()
    hint = serializers.CharField()
    monitors = serializers.IntegerField(help_text="How many created monitors were selected in it.")


class ImportedSerializer(serializers.Serializer[Any]):
    """The outcome for a monitor or channel of the import."""

    name = serializers.CharField()
    outcome = serializers.ChoiceField(choices=[outcome.value for outcome in Outcome])
    notes = ImportNoteSerializer(many=True)
    monitor = CreatedMonitorSerializer(allow_null=True)
    project = serializers.CharField(allow_null=True, help_text="The name of its project; null: none, or skipped.")
    is_private = serializers.BooleanField(help_text="Skipped: the network settings do not allow its address.")
    channel = CreatedChannelSerializer(allow_null=True, help_text="null: a monitor, or a skipped channel.")


def _pieces(found: Export) -> Iterator[bytes]:
    renderer = JSONRenderer()
    yield renderer.render(found.head)[:-1]
    for name, parts in found.sections():
        yield b"," + renderer.render(name) + b":"
        yield from json_pieces(parts)
    yield b"}"


class ManifestViewSet(ServiceViewSet):
    noun = "manifest"
    is_singleton = True
    serializer_class = ReportSerializer

    @operation(
        id="export_manifest",
        answer=OpenApiTypes.OBJECT,
        params=(
            IdParam("project_id", "Export only this project. A project token exports its own."),
            ChoiceParam("ids", "true: include all ids, to rename or move objects.", ["true", "false"]),
        ),
        throttles=(ManifestThrottle,),
    )
    def retrieve(self, *, project_id: str | None, ids: str | None) -> StreamingHttpResponse:
        """Export the account as a manifest.

        Without secrets: their values are ${keep:PK_…}. Applying it changes nothing.
        """
        with take_place(self.caller.account, most=1, kind="manifest") as place:
            found = Export(self.caller, project_id=project_id, with_ids=ids == "true", now=self.now)
            return stream(_pieces(found), place)

    @operation(id="apply_manifest", body=ApplySerializer, throttles=(ManifestThrottle,), max_bytes=MAX_BODY)
    def update(self, data: dict[str, Any]) -> Report:
        """Make the account match a manifest.

        One transaction: all of it is applied, or, if it has any problem, nothing. The 422 then also has `problems`, an
        array of Problem, and `reason` is the first of them. Repeating the request changes nothing more. With a project
        token, every entry must be in the token's project.
        """
        with limit_waiting(self.caller.account, most=1, kind="manifest"):
            try:
                return apply(
                    Manifest(Document(data["manifest"]), data.get("variables", {})),
                    self.caller,
                    prune=data.get("prune", False),
                    dry_run=data.get("dry_run", False),
                    now=self.now,
                    patience_sec=PATIENCE_SEC,
                )
            except InvalidManifest as error:
                raise InvalidManifestFailure(error) from None


class ImportViewSet(ServiceViewSet):
    noun = "import"
    serializer_class = ImportedSerializer

    @operation(
        id="import_monitors",
        body=ImportSerializer,
        many=True,
        status=200,
        is_idempotent=False,
        errors=(MonitorLimit,),
        throttles=(ManifestThrottle,),
        max_bytes=MAX_BODY,
    )
    def create(self, data: dict[str, Any]) -> list[Imported]:
        """Create monitors, and their alert channels, that do not exist yet.

        One transaction. A monitor exists if one of the same type, name and URL is in the same project, so repeating the
        request creates nothing more. Without `project_id`, groups become projects. First checks run with the
        scheduler's next tick. The response has an outcome for each of `monitors`, then for each of `channels`.
        """
        monitors = [
            MappedMonitor(
                item["name"],
                item["body"],
                item.get("enabled", True),
                group=item.get("group", ""),
                channels=tuple(dict.fromkeys(item.get("channels", ()))),
            )
            for item in data["monitors"]
        ]
        channels = [
            MappedChannel(item["key"], item["name"], item["body"], item.get("enabled", True))
            for item in data.get("channels", ())
        ]
        with limit_waiting(self.caller.account, most=1, kind="manifest"):
            return import_monitors(
                self.caller,
                MappedFile(monitors, channels),
                place=data,
                now=self.now,
                dry_run=data.get("dry_run", False),
                patience_sec=PATIENCE_SEC,
            ).outcomes
