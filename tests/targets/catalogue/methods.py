"""HEAD and how servers respond to it; other methods."""

from __future__ import annotations

from collections.abc import Callable

from tests.targets.catalogue.case import CHUNKED, SHORT, Group, contains
from tests.targets.server import Hang, Reset, Script, Seen, answer

GROUP = Group("HEAD and other methods")
up, down = GROUP.up, GROUP.down


def split(head: Script, other: Script) -> Callable[[Seen], Script]:
    return lambda seen: head if seen.method == "HEAD" else other


def only(method: str) -> Callable[[Seen], Script]:
    return lambda seen: [answer(200 if seen.method == method else 405)]


up("head", "Answers HEAD with 200 and the length of a body that does not come.", [answer(length=9999)], method="HEAD")
for code in (405, 501):
    up(f"head-{code}", f"Refuses HEAD with {code} and answers GET.", split([answer(code)], [answer()]), method="HEAD")
    up(
        f"head-{code}-expected",
        f"Refuses HEAD with the {code} that is expected.",
        split([answer(code)], [answer()]),
        method="HEAD",
        http_status=code,
        expect_status=code,
    )
down(
    "head-405-get-500",
    "Refuses HEAD and answers GET with 500.",
    split([answer(405)], [answer(500)]),
    "http_failure",
    "500",
    http_status=500,
    method="HEAD",
)
down("head-405-get-405", "Refuses HEAD and GET.", [answer(405)], "http_failure", "405", http_status=405, method="HEAD")
down(
    "head-405-get-stalls",
    "Refuses HEAD and never answers GET.",
    split([answer(405)], [Hang()]),
    "timeout",
    "did not answer",
    method="HEAD",
    **SHORT,
)
for code in (400, 403, 404, 500, 503):
    down(
        f"head-{code}-get-200",
        f"Answers HEAD with {code}, which is not repeated, although GET would work.",
        split([answer(code)], [answer()]),
        "http_failure",
        str(code),
        http_status=code,
        method="HEAD",
    )
down(
    "head-stalls",
    "Never answers HEAD, although GET would work.",
    split([Hang()], [answer()]),
    "timeout",
    "did not answer",
    method="HEAD",
    **SHORT,
)
down(
    "head-reset",
    "Resets the connection at HEAD, although GET would work.",
    split([Reset()], [answer()]),
    "connection_failure",
    "without an answer",
    method="HEAD",
)
up("head-with-body", "Sends a body in response to HEAD.", [answer(200, b"a body")], method="HEAD")
up("head-chunked", "Announces chunks to HEAD.", [CHUNKED], method="HEAD")
up("head-gzip", "Announces gzip to HEAD.", [answer(200, b"", "Content-Encoding: gzip")], method="HEAD")
up(
    "head-odd-coding",
    "Announces an unknown coding to HEAD.",
    [answer(200, b"", "Content-Encoding: odd")],
    method="HEAD",
)
up(
    "head-with-rules",
    "Is asked by GET, because HEAD has no body for the rules.",
    split([answer(500)], [answer(200, b"the end")]),
    method="HEAD",
    content_rules=[contains("the end")],
)
up("head-by-default", "Is asked by HEAD where no method is given.", split([answer()], [answer(500)]), type="http")
for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
    up(f"method-{method.lower()}", f"Accepts only {method}, and gets it.", only(method), method=method)
up(
    "post-body",
    "Takes the POST with a body of 8,192 characters.",
    lambda seen: [answer(200 if len(seen.body) == 8192 else 400)],
    method="POST",
    request_body="x" * 8192,
)
up(
    "post-answered-unread",
    "Answers a POST without waiting for its body.",
    lambda _: [answer(202)],
    method="POST",
    request_body="{}",
    http_status=202,
)
