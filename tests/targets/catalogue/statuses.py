"""Status codes and status lines."""

from __future__ import annotations

from tests.targets.catalogue.case import SHORT, Group
from tests.targets.server import Hang, answer, redirect

GROUP = Group("Status codes")
up, down = GROUP.up, GROUP.down

for code in (200, 201, 202, 204, 206, 299, 300, 304, 399):
    up(f"status-{code}", f"Answers {code}.", [answer(code)], http_status=code)

for code, words in {
    400: "400 instead of 2xx or 3xx",
    401: "not authorised",
    403: "forbidden",
    404: "not found",
    405: "method is not allowed",
    407: "proxy",
    408: "gave up waiting",
    410: "gone",
    418: "418",
    421: "does not serve this host",
    429: "limits how often",
    451: "451",
    499: "499",
    500: "met an error",
    501: "does not know the method",
    502: "no valid answer behind it",
    503: "unavailable",
    504: "no answer behind it in time",
    599: "599",
    600: "600",
    999: "999",
}.items():
    down(f"status-{code}", f"Answers {code}.", [answer(code)], "http_failure", words, http_status=code)

up("expected-404", "Answers the 404 that is expected.", [answer(404)], http_status=404, expect_status=404)
up("expected-500", "Answers the 500 that is expected.", [answer(500)], http_status=500, expect_status=500)
up("expected-302", "Answers the 302 that is expected.", redirect("/x"), http_status=302, expect_status=302)
up("expected-0", "Answers 302 where the expected status is 0, any.", redirect("/x"), http_status=302)
down(
    "expected-204-got-200",
    "Answers 200 where 204 is expected.",
    [answer(200)],
    "http_failure",
    "200 instead of the expected 204",
    http_status=200,
    expect_status=204,
)

up("trigger-204", "Answers a trigger with 204.", [answer(204)], http_status=204, type="scheduler")
down(
    "trigger-302",
    "Answers a trigger with a redirect, which is not 2xx.",
    redirect("/x"),
    "http_failure",
    "302 instead of 2xx",
    http_status=302,
    type="scheduler",
)
up(
    "trigger-302-expected",
    "Answers a trigger with the redirect that is expected.",
    redirect("/x"),
    http_status=302,
    type="scheduler",
    expect_status=302,
)
down(
    "trigger-500",
    "Answers a trigger with 500.",
    [answer(500)],
    "http_failure",
    "500",
    http_status=500,
    type="scheduler",
)

up("interim-100", "Sends 100 before 200.", [b"HTTP/1.1 100 Continue\r\n\r\n", answer()])
up("interim-103", "Sends early hints before 200.", [b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", answer()])
up("interim-many", "Sends fifty interim answers before 200.", [b"HTTP/1.1 102 Processing\r\n\r\n" * 50, answer()])
down(
    "interim-only",
    "Sends 100 and closes without an answer.",
    [b"HTTP/1.1 100 Continue\r\n\r\n"],
    "connection_failure",
    "without an answer",
    http_status=100,
)
down(
    "interim-stall",
    "Sends 100, then nothing.",
    [b"HTTP/1.1 100 Continue\r\n\r\n", Hang()],
    "timeout",
    "did not",
    http_status=100,
    **SHORT,
)
down(
    "status-101",
    "Switches protocols without a request, and so sends no response.",
    [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"],
    "connection_failure",
    "without an answer",
    http_status=101,
)

up("status-line-1.0", "Speaks HTTP/1.0.", [b"HTTP/1.0 200 OK\r\n\r\nhello"])
up("status-line-no-reason", "Leaves the reason phrase out.", [b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"])
up("status-line-bare-lf", "Ends its lines without carriage returns.", [b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"])
up(
    "status-line-latin-1",
    "Has a reason phrase of no known charset.",
    [b"HTTP/1.1 200 D\xe9j\xe0 vu\r\nContent-Length: 0\r\n\r\n"],
)
for name, about, line in (
    ("no-version", "Leaves the version out.", b"200 OK\r\n\r\n"),
    ("icy", "Speaks the protocol of old radio streams.", b"ICY 200 OK\r\n\r\n"),
    ("two-digits", "Sends a status of two digits.", b"HTTP/1.1 20 OK\r\n\r\n"),
    ("four-digits", "Sends a status of four digits.", b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n"),
    ("zeros", "Sends a status below 100.", b"HTTP/1.1 099 OK\r\n\r\n"),
    ("small-letters", "Sends a status of four digits in small letters.", b"http/1.1 2000 ok\r\n\r\n"),
    ("fraction", "Sends a status with a fraction.", b"HTTP/1.1 200.5 OK\r\n\r\n"),
    ("interim", "Sends an interim status of four digits.", b"HTTP/1.1 1000 X\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"),
    ("letters", "Sends a status of letters.", b"HTTP/1.1 OK 200\r\n\r\n"),
    ("version-9", "Claims version 9 of HTTP.", b"HTTP/9.1 200 OK\r\n\r\n"),
):
    down(f"status-line-{name}", about, [line], "connection_failure", "not valid HTTP")
