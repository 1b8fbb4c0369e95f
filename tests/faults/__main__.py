"""`python -m tests.faults`, or `make faults`: SECONDS_TO_RUN, MONITORS and SEED in the environment.

The last line printed is one JSON object. Exits 1 where something was found wrong, each of it explained on
standard error; the seed that is printed plays the same script again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys

from tests.faults.driver import run


def main() -> int:
    # Told to stop, leave by all the `with` blocks: nothing that was started stays.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    seed = int(os.environ.get("SEED") or random.randrange(1_000_000))
    found = run(
        seed=seed,
        seconds=float(os.environ.get("SECONDS_TO_RUN") or 600),
        monitors=int(os.environ.get("MONITORS") or 500),
    )
    print(json.dumps(found))  # noqa: T201
    from tests.faults.accounts import KINDS  # Django is set up by now

    return 1 if any(found[kind] for kind in KINDS) else 0


if __name__ == "__main__":
    sys.exit(main())
