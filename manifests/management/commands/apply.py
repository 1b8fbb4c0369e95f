"""`manage.py apply FILE --account EMAIL`: make an account match a YAML file."""

from __future__ import annotations

from core.commands import SharedCommand
from manifests.local import LocalBackend
from pulsekeeper.manifest.commands import Apply


class Command(SharedCommand):
    shared = Apply(LocalBackend)
