"""Missing pings with real processes: the web server dies, and the dispatchers while it is down."""

from __future__ import annotations

import json

from tests.processes.up import Program

LONGEST = 400  # on a busy machine


def test_no_alert_is_sent_while_the_web_server_is_down(program: Program) -> None:
    done = program("-m", "tests.faults.missing_pings", longest=LONGEST)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"downs": 0, "open": 1, "ended": 1}, done.stderr
