"""`manage.py import_from SOURCE FILE`: import monitors from another product."""

from __future__ import annotations

from core.commands import SharedCommand
from manifests.local import LocalBackend
from pulsekeeper.manifest.commands import Import


class Command(SharedCommand):
    shared = Import(LocalBackend)
