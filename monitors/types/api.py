from __future__ import annotations

from checks.spec import RuleType
from monitors.types.http import HttpType


class JsonApi(HttpType):
    name = "api"
    label = "JSON API"
    icon = "list"
    description = "Reads a JSON response and checks its fields."
    defaults = {"method": "GET"}  # noqa: RUF012
    required_rules = frozenset({RuleType.JSON_FIELD})
    rules_help = "At least one field of the JSON. Its path consists of keys and indexes, as in data.items.0.status."
    first_rule = RuleType.JSON_FIELD
