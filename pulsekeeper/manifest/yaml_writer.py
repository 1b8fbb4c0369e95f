"""Write plain values as YAML that is readable and diffs well. Reading it returns the same values. Pure."""

from __future__ import annotations

import io
import json
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString, SingleQuotedScalarString

_LINES = re.compile(r"(?:[!-~][ -~]*[!-~]|[!-~])?(?:\n(?:[ -~]*[!-~])?)*\n?")
# Booleans in YAML 1.1, which other tools still read.
_OLD_BOOLEANS = frozenset({"y", "yes", "n", "no", "on", "off"})
_HEADER = """\
# Written by `manage.py export`. docs/use/configuration-as-code.md documents the format.
# ${keep:PK_…} keeps the stored secret, unless the environment sets that variable.
"""


def write(document: dict[str, Any], *, as_json: bool = False) -> str:
    if as_json:
        return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 2**16  # folded lines make poor diffs
    yaml.allow_unicode = True
    out = io.StringIO()
    out.write(_HEADER)
    for name, value in document.items():
        if isinstance(value, list):
            out.write("\n")
        yaml.dump({name: _prepare(value)}, out)
    return out.getvalue()


def _prepare(value: Any) -> Any:
    if isinstance(value, dict):
        return {_text(name): _prepare(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_prepare(inner) for inner in value]
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> Any:
    if "\n" in text and _LINES.fullmatch(text):
        return LiteralScalarString(text)
    if not text.isprintable():
        return DoubleQuotedScalarString(text)
    if text.lower() in _OLD_BOOLEANS:
        return SingleQuotedScalarString(text)
    return text
