"""The part of docs/use/checks.md between its markers, with the catalogue: `python -m tests.generated` writes it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.targets.catalogue import GROUPS, Case, pings
from tests.targets.catalogue.case import Group

# Pings are checked separately, in a network namespace.
_GROUPS = (*GROUPS, pings.GROUP)

DOCUMENT = Path(__file__).parents[2] / "docs" / "use" / "checks.md"
START, END = "<!-- catalogue -->", "<!-- /catalogue -->"
_LONGEST_VALUE = 60


def _settings(case: Case) -> str:
    """Return the settings in the API's form, without GET and with long values truncated."""
    given = {name: value for name, value in case.settings.items() if (name, value) != ("method", "GET")}
    shown = ", ".join(f"{name}: {_value(value)}" for name, value in given.items() if value not in ([], {}))
    return f"`{shown}`" if shown else ""


def _value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True).replace("|", "\\u007c").replace("`", "\\u0060")
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def _row(case: Case) -> str:
    about = case.about.replace("|", "\\|").replace("<", "&lt;")
    verdict = case.status if case.reason_code is None else f"{case.status}, `{case.reason_code}`"
    return f"| {case.id} | {about} | {_settings(case)} | {verdict} |"


def _section(group: Group) -> str:
    rows = "\n".join(map(_row, group.cases))
    return f"### {group.name}\n\n| case | the target | the monitor | verdict |\n|---|---|---|---|\n{rows}\n"


def with_catalogue(text: str) -> str:
    """Return the document's text with the current catalogue. Raise ValueError if a marker is missing."""
    before, rest = text[: text.index(START)], text[text.index(END) :]
    sections = "\n".join(map(_section, _GROUPS))
    return f"{before}{START}\n{sum(len(group.cases) for group in _GROUPS)} cases.\n\n{sections}{rest}"
