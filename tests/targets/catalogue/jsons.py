"""json_field on JSON, on unusual JSON, and on other data."""

from __future__ import annotations

from tests.targets.catalogue.case import MIB, Group, holds
from tests.targets.server import Script, answer

GROUP = Group("JSON")
up, down = GROUP.up, GROUP.down


def document(body: bytes | str) -> Script:
    raw = body if isinstance(body, bytes) else body.encode()
    return [answer(200, raw, "Content-Type: application/json")]


for name, about, body, rule in (
    ("exists", "Contains the field.", '{"a": {"b": 1}}', holds("a.b")),
    ("null", "Contains null, which exists.", '{"a": null}', holds("a")),
    ("false", "Contains false, which exists.", '{"a": false}', holds("a")),
    ("zero", "Contains 0, which exists.", '{"a": 0}', holds("a")),
    ("empty-string", "Contains an empty string, which exists.", '{"a": ""}', holds("a")),
    ("equals", "Contains the string.", '{"status": "ok"}', holds("status", "ok")),
    ("equals-empty", "Contains the empty string that is expected.", '{"a": ""}', holds("a", "")),
    ("equals-digits", "Contains 1.10, by its digits.", '{"a": 1.10}', holds("a", "1.10")),
    ("equals-exponent", "Contains 1e2, by its digits.", '{"a": 1e2}', holds("a", "1e2")),
    ("equals-big", "Contains an integer of 40 digits.", '{"a": %s}' % ("9" * 40), holds("a", "9" * 40)),
    ("equals-true", "Contains true.", '{"a": true}', holds("a", "true")),
    ("equals-true-string", 'Contains the string "true".', '{"a": "true"}', holds("a", "true")),
    ("equals-null", "Contains null, which is expected.", '{"a": null}', holds("a", "null")),
    (
        "equals-object",
        "Contains an object, compared in the body's order.",
        '{"a": {"z": 1, "b": "ü"}}',
        holds("a", '{"z":1,"b":"ü"}'),
    ),
    ("equals-array", "Contains an array.", '{"a": [1, "2", null]}', holds("a", '[1,"2",null]')),
    ("equals-escape", "Contains an escaped letter.", '{"a": "gr\\u00fcn"}', holds("a", "grün")),
    ("index", "Contains an array, which the path indexes.", '{"a": [{"b": 1}, {"b": 2}]}', holds("a.1.b", "2")),
    ("top-array", "Is an array itself.", '[{"a": 1}]', holds("0.a")),
    ("number-key", "Contains an object with a number for a key.", '{"a": {"0": 1}}', holds("a.0")),
    ("duplicate", "Contains a key twice; the last one counts.", '{"a": 1, "a": 2}', holds("a", "2")),
    ("mark", "Begins with a byte order mark.", b'\xef\xbb\xbf{"a": 1}', holds("a")),
    ("utf-16", "Is in UTF-16.", '{"a": "ü"}'.encode("utf-16"), holds("a", "ü")),
    ("blanks", "Is surrounded by blanks.", ' \r\n\t{"a": 1}\n ', holds("a")),
    ("at-cap", "Is exactly 1 MiB.", b'{"a": "' + b"x" * (MIB - 9) + b'"}', holds("a")),
):
    up(f"json-{name}", about, document(body), content_rules=[rule])
up(
    "json-as-html",
    "Calls JSON a page.",
    [answer(200, b'{"a": 1}', "Content-Type: text/html")],
    content_rules=[holds("a")],
)
up("json-api", "Answers an api monitor.", document('{"a": 1}'), type="api", content_rules=[holds("a", "1")])

for name, about, body in (
    ("html", "Sends a page.", "<!doctype html>"),
    ("empty", "Sends an empty body.", ""),
    ("cut", "Sends JSON that breaks off.", '{"a": 1'),
    ("trailing-comma", "Sends JSON with a comma too many.", '{"a": 1,}'),
    ("single-quotes", "Sends JSON with single quotes.", "{'a': 1}"),
    ("comment", "Sends JSON with a comment.", '{"a": 1} // ok'),
    ("two", "Sends two documents.", '{"a": 1}{"a": 1}'),
    ("nan", "Sends NaN, which is not JSON.", '{"a": NaN}'),
    ("infinity", "Sends Infinity, which is not JSON.", '{"a": -Infinity}'),
    ("control", "Sends a bare line break in a string.", '{"a": "x\ny"}'),
    ("binary", "Sends bytes.", bytes(range(256))),
):
    down(
        f"json-none-{name}",
        about,
        document(body),
        "content_failure",
        "not JSON",
        http_status=200,
        content_rules=[holds("a")],
    )
for name, about, body, path in (
    ("key", "Lacks the field.", '{"b": 1}', "a"),
    ("nested", "Lacks the inner field.", '{"a": {"b": 1}}', "a.c"),
    ("scalar", "Contains a number where the path expects an object.", '{"a": 1}', "a.b"),
    ("string", "Contains a string where the path expects an array.", '{"a": "xyz"}', "a.0"),
    ("index", "Contains an array that is too short.", '{"a": [1]}', "a.1"),
    ("negative-index", "Contains an array, which has no index -1.", '{"a": [1]}', "a.-1"),
    ("dot", "Contains a key with a dot, which no path reaches.", '{"a.b": 1}', "a.b"),
    ("case", "Contains the field in other case.", '{"A": 1}', "a"),
    ("null-step", "Contains null where the path expects an object.", '{"a": null}', "a.b"),
    ("top-scalar", "Is a number.", "1", "a"),
):
    down(
        f"json-missing-{name}",
        about,
        document(body),
        "content_failure",
        "has no field",
        http_status=200,
        content_rules=[holds(path)],
    )
for name, about, body, equals in (
    ("string", "Contains another string.", '{"a": "down"}', "ok"),
    ("digits", "Contains 1.0 where 1 is expected.", '{"a": 1.0}', "1"),
    ("number-string", "Contains true where True is expected.", '{"a": true}', "True"),
    ("null-empty", "Contains null where an empty string is expected.", '{"a": null}', ""),
    ("order", "Contains an object in another order.", '{"a": {"x": 1, "y": 2}}', '{"y":2,"x":1}'),
    ("long", "Contains a string of 100,000 characters.", '{"a": "%s"}' % ("x" * 100_000), "x"),
    ("controls", "Contains control characters.", '{"a": "\\u0000\\u001b[2J\\u202e"}', "x"),
    ("surrogate", "Contains half of a surrogate pair.", '{"a": "\\ud800"}', "x"),
):
    down(
        f"json-differs-{name}",
        about,
        document(body),
        "content_failure",
        "instead of",
        http_status=200,
        content_rules=[holds("a", equals)],
    )
down(
    "json-deep",
    "Nests 100,000 arrays.",
    document(b"[" * 100_000 + b"]" * 100_000),
    "content_failure",
    "too deep",
    http_status=200,
    content_rules=[holds("a")],
)
down(
    "json-over-cap",
    "Is a byte over 1 MiB.",
    document(b'{"a": "' + b"x" * (MIB - 8) + b'"}'),
    "content_failure",
    "too large",
    http_status=200,
    content_rules=[holds("a")],
)
