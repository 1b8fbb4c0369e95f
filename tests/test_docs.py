"""What the documents say against what the code does."""

from __future__ import annotations

from pathlib import Path

from config.env import Env

ROOT = Path(__file__).parents[1]


def test_every_setting_is_in_the_one_table() -> None:
    table = [
        f"| `{name.upper()}` | {_default(name)} | {field.description} |"
        for name, field in Env.model_fields.items()
    ]
    written = [
        line for line in (ROOT / "docs" / "settings.md").read_text().splitlines() if line.startswith("| `")
    ]
    assert written == table


def _default(name: str) -> str:
    field = Env.model_fields[name]
    if name == "data_dir":
        return "`.data` beside `manage.py`"
    value = field.default
    if value in (None, ()):
        return "none"
    return f"`{','.join(map(str, value)) if isinstance(value, tuple) else value}`"
