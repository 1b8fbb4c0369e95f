"""`manage.py export --account EMAIL`: write an account as a file for `manage.py apply`."""

from __future__ import annotations

from core.commands import SharedCommand
from manifests.local import LocalBackend
from pulsekeeper.manifest.commands import Export


class Command(SharedCommand):
    shared = Export(LocalBackend)
