from __future__ import annotations

from checks.spec import RuleType
from monitors.types.http import HttpType


class Keyword(HttpType):
    name = "keyword"
    label = "Keyword"
    icon = "search"
    description = "Looks for a text on a page, or makes sure that it is missing."
    defaults = {"method": "GET"}  # noqa: RUF012
    required_rules = frozenset({RuleType.TEXT_CONTAINS, RuleType.TEXT_ABSENT})
    rules_help = "At least one text that the response must contain, or must not contain."
