"""`manage.py probe URL`: one check from the command line, without a database and a broker."""

from __future__ import annotations

from core.commands import SharedCommand
from core.outbound import guard
from monitors.probing.command import Probe
from monitors.probing.prober import probe_engine


class Command(SharedCommand):
    shared = Probe(lambda: (guard(), probe_engine()))
