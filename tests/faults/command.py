"""What the commands of this folder share: what they take from the environment, print, and exit with."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.faults.driver import run
from tests.faults.script import STARTING_SEC
from tests.faults.system import System


def command(
    serve: Callable[[ExitStack, Path], System], *, seconds: float, starting_sec: float = STARTING_SEC
) -> int:
    """SECONDS_TO_RUN, MONITORS and SEED are in the environment; without the first of them it is `seconds`.

    The last line printed is one JSON object. Returns 1 where something was found wrong, each of it explained on
    standard error; the seed that is printed plays the same script again.
    """
    # Told to stop, leave by all the `with` blocks: nothing that was started stays.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    found = run(
        serve,
        seed=int(os.environ.get("SEED") or random.randrange(1_000_000)),
        seconds=float(os.environ.get("SECONDS_TO_RUN") or seconds),
        monitors=int(os.environ.get("MONITORS") or 500),
        starting_sec=starting_sec,
    )
    print(json.dumps(found))  # noqa: T201
    from tests.faults.accounts import KINDS  # Django is set up by now

    return 1 if any(found[kind] for kind in KINDS) else 0
