"""The products whose exports can be imported. Plain Python."""

from __future__ import annotations

from collections.abc import Callable

from pulsekeeper.importers import gatus, healthchecks, uptime_kuma, uptimerobot
from pulsekeeper.importers.mapped import MappedFile

SOURCES: dict[str, Callable[[str], MappedFile]] = {
    "uptime-kuma": uptime_kuma.read,
    "healthchecks": healthchecks.read,
    "uptimerobot": uptimerobot.read,
    "gatus": gatus.read,
}
