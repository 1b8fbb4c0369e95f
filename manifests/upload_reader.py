"""The process that reads one uploaded export: the text from standard input, a MappedFile to standard output as JSON.

`manifests.uploads` runs this file as a script. A megabyte of YAML takes half a minute of CPU, and aliases multiply what
it contains: the kernel limits time and memory here, outside the web process.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from dataclasses import asdict, replace
from pathlib import Path

MEMORY_BYTES = 512 * 1024 * 1024  # address space
MAX_MONITORS, MAX_CHANNELS = 1_000, 200
MAX_OUTPUT = 2 * 1024 * 1024
UNREADABLE = 3  # the exit status; the reason is on standard error


def main(source: str, cpu_sec: int) -> None:
    """Write the monitors and channels. SIGXCPU ends the process at the CPU limit."""
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_sec, cpu_sec + 1))
    if sys.platform == "linux":  # other systems do not enforce it
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from core.text import printable
    from pulsekeeper.importers.mapped import Note, UnreadableFileError, decode
    from pulsekeeper.importers.sources import SOURCES

    try:
        mapped = SOURCES[source](decode(sys.stdin.buffer.read()))
    except UnreadableFileError as error:
        _refuse(str(error))
    for noun, items, limit in (
        ("monitors", mapped.monitors, MAX_MONITORS),
        ("alert channels", mapped.channels, MAX_CHANNELS),
    ):
        if len(items) > limit:
            _refuse(f"the file has more than {limit:,} {noun}; import it with the command pulsekeeper import")
    pieces, size = [], 0
    for each in mapped.items:
        notes = tuple(Note(note.field, printable(note.text)) for note in each.notes)
        pieces.append(json.dumps(asdict(replace(each, notes=notes))))
        size += len(pieces[-1])
        if size > MAX_OUTPUT:
            _refuse("the file is too large; import it with the command pulsekeeper import")
    count = len(mapped.monitors)
    monitors, channels = (",".join(part) for part in (pieces[:count], pieces[count:]))
    sys.stdout.write(f'{{"monitors":[{monitors}],"channels":[{channels}]}}')


def _refuse(reason: str) -> None:
    sys.stderr.write(reason)
    sys.exit(UNREADABLE)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    main(sys.argv[1], int(sys.argv[2]))
