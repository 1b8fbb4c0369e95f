"""Conditions of Gatus, like `[STATUS] == 200`, as settings and rules of ours. Pure."""

from __future__ import annotations

import re

from manifests.importers.mapped import Making, expect

_MAX_CONDITION = 1_000
_OPERATOR = re.compile(r"==|!=|<=|>=|<|>")
_HAS = re.compile(r"has\(\[BODY\]\.(.+)\)")
_PATH = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+|\[\d+\])*|(?:\[\d+\])(?:\.[A-Za-z0-9_-]+|\[\d+\])*")
_PATTERN = re.compile(r"pat\(\*([^*?\[\]]+)\*\)")
_DURATION_ROUND = "its warnings come 30, 14, 7, 3 and 1 days before the end here, and nothing is down for it"


def apply_condition(making: Making, condition: str) -> None:
    """Have `making` say the condition, or note that it cannot."""
    found = _OPERATOR.search(condition, 1) if len(condition) <= _MAX_CONDITION else None
    if found is None or not _said(
        making, condition, condition[: found.start()].strip(), found[0], condition[found.end() :].strip()
    ):
        making.note("conditions", f"{condition[:200]} cannot be said here and is left out")


def _said(making: Making, condition: str, left: str, operator: str, right: str) -> bool:
    if left == "[STATUS]":
        return _status(making, condition, operator, right)
    if left == "[RESPONSE_TIME]":
        return _response_time(making, condition, operator, right)
    if left == "[CONNECTED]":
        return (operator, right) == ("==", "true")  # what does not connect is down anyhow
    if left in ("[CERTIFICATE_EXPIRATION]", "[DOMAIN_EXPIRATION]"):
        making.given["check_ssl" if left.startswith("[CERT") else "check_domain"] = True
        making.note("conditions", f"{condition[:200]}: {_DURATION_ROUND}")
        return operator in (">", ">=")
    return _body(making, left, operator, right)


def _status(making: Making, condition: str, operator: str, right: str) -> bool:
    if not (right.isascii() and right.isdigit()) or len(right) > 3:
        return False
    code = int(right)
    if operator == "==":
        making.given["expect_status"] = code
        return True
    if operator not in ("<", "<="):
        return False
    end = code + (operator == "<=")
    if end not in (300, 400):
        return False
    expect(making, "conditions", set(range(200, end)))
    return True


def _response_time(making: Making, condition: str, operator: str, right: str) -> bool:
    if not (right.isascii() and right.isdigit()) or len(right) > 6 or operator not in ("<", "<="):
        return False
    making.given["slow_ms"] = int(right) + (operator == "<=")
    making.note("conditions", f"{condition[:200]}: what takes longer is slow here, and not down")
    return True


def _body(making: Making, left: str, operator: str, right: str) -> bool:
    if left == "[BODY]" and (found := _PATTERN.fullmatch(right)):
        if operator not in ("==", "!="):
            return False
        making.rule("conditions", type="text_contains" if operator == "==" else "text_absent", value=found[1])
        return True
    if (found := _HAS.fullmatch(left)) and (operator, right) in (("==", "true"), ("!=", "false")):
        path = _dotted(found[1])
        if path is not None:
            making.rule("conditions", type="json_field", path=path)
        return path is not None
    if not left.startswith(("[BODY].", "[BODY][")) or operator != "==":
        return False
    path = _dotted(left.removeprefix("[BODY]").removeprefix("."))
    if path is None or re.match(r"(pat|any|len|has)\(|\[[A-Z_]+\]", right):
        return False
    making.rule("conditions", type="json_field", path=path, equals=right)
    return True


def _dotted(path: str) -> str | None:
    """`data[0].id` as `data.0.id`; None for what is more than keys and indexes."""
    if not _PATH.fullmatch(path):
        return None
    return re.sub(r"\[(\d+)\]", r".\1", path).removeprefix(".")
