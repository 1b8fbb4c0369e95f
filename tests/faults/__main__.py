"""`python -m tests.faults`, or `make faults`; `tests.faults.command` says what it takes and prints."""

from __future__ import annotations

import sys

from tests.faults.command import command
from tests.faults.system import one_machine

if __name__ == "__main__":
    sys.exit(command(one_machine, seconds=600))
