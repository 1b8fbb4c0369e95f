"""`manage.py probe URL`: one check from the command line, without a database and a broker."""

from __future__ import annotations

from core.commands import SharedCommand
from core.outbound import guard
from monitors.checking.command import Probe
from monitors.checking.runner import shared_engine


class Command(SharedCommand):
    shared = Probe(lambda: (guard(), shared_engine()))
