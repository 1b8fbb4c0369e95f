"""`python -m tests.faults`, or `make faults`; `tests.faults.command` says what it takes and prints."""

from __future__ import annotations

import sys
from functools import partial

from tests.faults import past
from tests.faults.command import command
from tests.faults.system import one_machine

if __name__ == "__main__":
    sys.exit(command(partial(one_machine, others=past.COMMANDS), seconds=600))
