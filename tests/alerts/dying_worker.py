"""Workers that kill themselves (-9) right after a step, to test what their successors find.

    python -m tests.alerts.dying_worker

Each line of standard input is a step, or empty. A forked process runs one tick, sends all due messages and dies right
after the step, or ends when nothing is left to do; its exit code is printed. Forking avoids loading Django again.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
django.setup()

from alerts import batch, notify, outbox, planned, tasks  # noqa: E402
from alerts.models import Delivery  # noqa: E402
from incidents import consuming  # noqa: E402
from tests.processes.waiting import until  # noqa: E402

# In order. A worker dies right after the step; `…ing` steps are inside a transaction.
STEPS: dict[str, tuple[Any, str]] = {
    "locked": (consuming, "lock_in_turn"),
    "consuming": (consuming._Batch, "write"),
    "consumed": (consuming, "consume"),
    "pending": (notify, "lock_in_turn"),
    "put": (batch, "put"),
    "announced": (notify, "notify_incidents"),
    "releasing": (planned, "write"),
    "released": (planned, "release_due"),
    "claimed": (outbox.OUTBOX, "claim"),
    "loaded": (outbox, "load"),
    "sent": (outbox, "_send"),
    "finishing": (outbox.OUTBOX, "finished"),
    "finished": (outbox.OUTBOX, "finish"),
}


def deadly(work: Callable[..., Any]) -> Callable[..., Any]:
    def done_and_dead(*args: Any, **kwargs: Any) -> Any:
        work(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)

    return done_and_dead


def work(step: str) -> None:
    if step:
        place, name = STEPS[step]
        setattr(place, name, deadly(getattr(place, name)))
    tasks.tick()
    # The account's limit may leave nothing to claim while messages are sent: only the rows show when all are sent.
    until(
        lambda: not outbox.OUTBOX.send_next() and not Delivery.objects.filter(done_at=None).exists(), 50, "all is sent"
    )
    outbox.OUTBOX.stop(grace_sec=30)


def main() -> None:
    for line in sys.stdin:
        if pid := os.fork():
            _, status = os.waitpid(pid, 0)
            print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201
            continue
        try:
            work(line.strip())
        except BaseException:  # noqa: BLE001  (this process must not go on with the parent's loop)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)


if __name__ == "__main__":
    main()
