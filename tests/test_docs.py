"""The documentation against the code."""

from __future__ import annotations

import re
from pathlib import Path

from audit.actions import MEANINGS
from benchmarks.fairness.rows import ROWS
from config.settings import BASE_DIR, env

ROOT = Path(__file__).parents[1]


def test_every_setting_is_in_the_one_table() -> None:
    defaults = {name: f"`{default}`" if default else "none" for name, default in env.defaults.items()}
    assert defaults["DATA_DIR"] == f"`{BASE_DIR / '.data'}`"
    defaults["DATA_DIR"] = "`.data` beside `manage.py`"
    table = (ROOT / "docs" / "operate" / "settings.md").read_text()
    assert re.findall(r"^\| `(\w+)` \| (.+?) \| .*\w.* \|$", table, re.MULTILINE) == list(defaults.items())


def test_every_secret_that_may_be_a_file_is_named() -> None:
    said = (ROOT / "docs" / "operate" / "settings.md").read_text().partition("Each of ")[2].partition(" may be ")[0]
    assert re.findall("`([A-Z_]+)`", said) == env.from_files


def test_every_action_of_the_audit_log_is_in_its_table() -> None:
    table = [f"| `{action}` | {meaning} |" for action, meaning in MEANINGS.items()]
    lines = (ROOT / "docs" / "operate" / "audit.md").read_text().splitlines()
    assert [line for line in lines if re.match(r"\| `\w+\.\w+` \|", line)] == table
    assert all(re.fullmatch("[a-z]+(_[a-z]+)?[.][a-z]+", action) for action in MEANINGS)


def test_each_attack_of_neighbours_proves_a_row_of_the_threat_model() -> None:
    text = (ROOT / "docs" / "operate" / "threat-model.md").read_text()
    table = text.partition("## Shared resources")[2].partition("\n## ")[0]
    last = [row.rsplit("|", 2)[-2] for row in table.splitlines() if row.startswith("| ")][1:]
    proved = [set(re.findall("`([a-z0-9-]+)`", cell)) for cell in last]
    assert all(proved)
    assert set().union(*proved) == set(ROWS)


def test_code_and_tests_that_the_threat_model_names_are_there() -> None:
    text = (ROOT / "docs" / "operate" / "threat-model.md").read_text() + (ROOT / "SECURITY.md").read_text()
    named = re.findall(r"`([a-z_]+/[a-z_./]*)(?:::(\w+))?`", text)
    assert len(named) > 100
    missing = [
        f"{path}::{function}"
        for path, function in named
        if not (ROOT / path).exists() or (function and f"def {function}(" not in (ROOT / path).read_text())
    ]
    assert missing == []
