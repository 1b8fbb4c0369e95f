"""`manage.py apply FILE --account EMAIL`: make an account match a YAML file."""

from __future__ import annotations

from core.commands import SharedCommand
from manifests.commands import Apply
from manifests.local import LocalBackend


class Command(SharedCommand):
    shared = Apply(LocalBackend)
