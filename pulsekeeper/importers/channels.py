"""Build the API input for an alert channel from its fields in a source. Pure.

Their values are secrets: they are only in `body`, never in a note, a name or a repr.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from core.text import shorten
from pulsekeeper.importers.mapped import (
    Builder,
    MappedChannel,
    MappedFile,
    MappedMonitor,
    Note,
    UnsupportedError,
    short_name,
)


class ChannelFields(NamedTuple):
    """A type of channel of a source.

    `settings` are the fields of our settings, `notes` are about other fields. A field in `supported` makes it
    unsupported if it has another value than these.
    """

    kind: str
    settings: Mapping[str, str]
    notes: Mapping[str, str] = {}
    supported: Mapping[str, Collection[str]] = {}


def map_channel(
    builder: Builder, key: str, type_name: object, types: Mapping[str, ChannelFields]
) -> list[MappedChannel]:
    """Return the channels for one of the source: e-mail has one for each address."""
    key = short_name(key)
    try:
        if not isinstance(type_name, str) or type_name not in types:
            word = shorten(type_name, limit=50) if isinstance(type_name, str) else "nothing"
            builder.reject("type", f"{word} is not supported; an Apprise channel may reach it")
        fields = types[type_name]
        builder.body["kind"] = fields.kind
        for name, values in fields.supported.items():
            if (found := builder.text(name)) and found not in values:
                builder.reject(name, f"only {' and '.join(values)} is supported")
        for setting, name in fields.settings.items():
            if value := _value(builder, name):
                builder.body[setting] = value
        builder.note_ignored(fields.notes)
        builder.require_text()
    except UnsupportedError as error:
        return [MappedChannel(key, builder.name, None, notes=error.args)]
    bodies: list[dict[str, Any]] = [builder.body]
    if fields.kind == "email":
        addresses = [part for part in re.split(r"[,;\s]+", builder.body.get("address", "")) if part]
        bodies = [builder.body | {"address": address} for address in addresses] or bodies
    return [MappedChannel(key, builder.name, body, builder.enabled, tuple(builder.notes)) for body in bodies]


def _value(builder: Builder, name: str) -> str:
    value = builder.source.get(name)
    if type(value) is int and abs(value) < 1e15:  # the number of a chat
        return str(value)
    return builder.text(name).strip()


def with_channels(
    monitors: Sequence[MappedMonitor], channels: Iterable[MappedChannel] = (), *, field: str
) -> MappedFile:
    """Return the file. Add an unsupported channel for each key that monitors name in `field` and that is not listed."""
    listed = list(channels)
    known = {channel.key for channel in listed}
    note = Note(field, "the file does not contain its settings: create the channel, then select its monitors")
    missing = dict.fromkeys(key for monitor in monitors for key in monitor.channels if key not in known)
    return MappedFile(
        monitors, [*listed, *(MappedChannel(key, f"Channel {key[:8]}", None, notes=(note,)) for key in missing)]
    )
