"""Run the transcript of the README against a running `up`."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess

from tests.processes.client import PASSWORD
from tests.processes.up import ROOT, Up, free_port


def test_the_transcript_prints_what_it_says(up: Up, clean_environment: dict[str, str]) -> None:
    text = (ROOT / "README.md").read_text()
    (script,) = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert f"ADMIN_PASSWORD='{PASSWORD}' make up" in text
    assert PASSWORD not in up.output
    # As written, except for the ports and for the minute between checks, which would take too long.
    for written, here in {
        "127.0.0.1:8000": f"127.0.0.1:{up.port}",
        "8099": str(free_port()),
        '"interval_sec": 60': '"interval_sec": 1',
    }.items():
        assert written in script
        script = script.replace(written, here)
    running = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        env=clean_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = running.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)  # its target, if the transcript did not end it
    assert output == printed, errors
