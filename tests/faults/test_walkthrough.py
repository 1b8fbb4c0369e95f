"""`make rehearsal` runs all commands of docs/operate."""

from __future__ import annotations

import re
import subprocess

from tests.faults.virtualenv import ROOT
from tests.faults.walkthrough import PAGES, blocks_of, script_of

_FENCE = re.compile(r"(.*)\n *```(?:ba|z)?sh\n")
_REASON = re.compile(r" *<!-- (?:tried\b.*|not tried: .*\w.*) -->")


def test_every_marked_block_is_found_and_is_a_script() -> None:
    pages = {path.stem: path.read_text() for path in (ROOT / "docs/operate").glob("*.md")}
    blocks = {name: list(blocks_of(page)) for name, page in pages.items()}
    assert {name for name, found in blocks.items() if found} == set(PAGES)
    assert {name: len(found) for name, found in blocks.items()} == {
        name: page.count("<!-- tried") for name, page in pages.items()
    }
    done = subprocess.run(["bash", "-n"], input=script_of(blocks), text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_block_of_commands_is_tried_or_says_why_not() -> None:
    for path in (ROOT / "docs/operate").glob("*.md"):
        page = path.read_text()
        assert [line for line in _FENCE.findall(page) if not _REASON.fullmatch(line)] == [], path.name
        # An indented block has no line for it.
        assert re.findall(r"^\n    (?:deploy/|manage\.py|systemctl|apt-get|docker|kubectl).*", page, re.MULTILINE) == []
