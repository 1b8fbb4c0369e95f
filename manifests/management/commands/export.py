"""`manage.py export --account EMAIL`: write an account as a file for `manage.py apply`."""

from __future__ import annotations

from core.commands import SharedCommand
from manifests.commands import Export
from manifests.local import LocalBackend


class Command(SharedCommand):
    shared = Export(LocalBackend)
