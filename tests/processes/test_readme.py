"""The README's transcript, run as it is written against a running `up`."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.processes.test_following import PASSWORD, manage
from tests.processes.up import ROOT, Start

pytestmark = pytest.mark.xdist_group("up")


def test_the_transcript_prints_what_it_says(start: Start, clean_environment: dict[str, str]) -> None:
    text = (ROOT / "README.md").read_text()
    (script,) = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    (printed,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    assert f"ADMIN_PASSWORD='{PASSWORD}' make up" in text
    up = start(ADMIN_PASSWORD=PASSWORD)
    up.wait_until_up()
    # As written but for the port and the minute between checks, which the suite does not wait for.
    manage(up, "from accounts.models import Plan; Plan.objects.update(min_interval_sec=1)", clean_environment)
    script = script.replace("127.0.0.1:8000", f"127.0.0.1:{up.port}").replace(
        '"interval_sec": 60', '"interval_sec": 1'
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=clean_environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == printed, done.stderr
