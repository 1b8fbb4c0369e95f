"""docs/use/first-day.md: its tasks have the documented outcomes, steps, clicks and fields."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Browser

from tests.browser.first_day import DOCUMENT, first_start, home, play
from tests.processes.up import copy_cluster
from tests.wrapper.conftest import require


def test_the_first_day_takes_what_its_page_says(
    browser: Browser, clean_environment: dict[str, str], migrated_cluster: Path, tmp_path: Path
) -> None:
    require("curl")  # of the wrapper
    data_dir = copy_cluster(migrated_cluster, tmp_path / "data")
    with home(tmp_path) as found, first_start(data_dir, clean_environment | found.variables) as instance:
        efforts = play(browser, instance, found, tmp_path)
    text = DOCUMENT.read_text()
    rows = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \| \d+\.\d \|$", text, re.MULTILINE)
    assert rows == [(effort.task, str(effort.clicks), str(effort.fields)) for effort in efforts]
    for effort in efforts:
        section = text.partition(f"\n## {effort.task}\n")[2].partition("\n## ")[0]
        steps = re.findall(r"^\d\. .*(?:\n   .*)*", section, re.MULTILINE)
        assert re.findall(r"\*(.+?)\*", "\n".join(steps)) == effort.labels, effort.task
