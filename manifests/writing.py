"""Plain values to YAML that people read and git compares. Pure.

What is written is read back as it was: text that is more than plain words is quoted, with escapes where it needs them.
"""

from __future__ import annotations

import io
import json
import re
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString, SingleQuotedScalarString

_LINES = re.compile(r"(?:[!-~][ -~]*[!-~]|[!-~])?(?:\n(?:[ -~]*[!-~])?)*\n?")
# No booleans of YAML 1.2, but of the 1.1 that other tools still read.
_OLD_BOOLEANS = frozenset({"y", "yes", "n", "no", "on", "off"})
_HEADER = """\
# Written by `manage.py export`; docs/use/configuration-as-code.md says what may stand here.
# ${keep:PK_…} stands for a secret: what is stored stays, unless the environment has another value.
"""


def write(document: dict[str, Any], *, as_json: bool = False) -> str:
    if as_json:
        return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 2**16  # lines that are folded do not compare well
    yaml.allow_unicode = True
    out = io.StringIO()
    out.write(_HEADER)
    for name, value in document.items():
        if isinstance(value, list):
            out.write("\n")
        yaml.dump({name: _prepared(value)}, out)
    return out.getvalue()


def _prepared(value: Any) -> Any:
    if isinstance(value, dict):
        return {_text(name): _prepared(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_prepared(inner) for inner in value]
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> Any:
    if "\n" in text and _LINES.fullmatch(text):
        return LiteralScalarString(text)
    if not text.isprintable():
        return DoubleQuotedScalarString(text)
    if text.lower() in _OLD_BOOLEANS:
        return SingleQuotedScalarString(text)
    return text
