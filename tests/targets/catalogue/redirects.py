"""Redirects, followed and not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.targets.catalogue.case import Closed, Group, Place
from tests.targets.names import Name
from tests.targets.server import Hang, Pause, Script, Seen, answer, redirect

GROUP = Group("Redirects")
up, down = GROUP.up, GROUP.down

END: Script = [answer(200, b"the end")]
ENDLESS: Script = [answer(302, b"x", "Location: /end", length=9999), Hang()]


def chain(length: int, *, seconds: float = 0.0) -> Callable[[Seen], Script]:
    def routes(seen: Seen) -> Script:
        number = int(seen.path[1:] or 0)
        return END if number == length else [Pause(seconds), *redirect(f"/{number + 1}")]

    return routes


def only(method: str, script: Script) -> Callable[[Seen], Script]:
    """Redirect to /end, which accepts one method only."""

    def routes(seen: Seen) -> Script:
        if seen.path != "/end":
            return script
        return END if seen.method == method else [answer(500)]

    return routes


for code in (301, 302, 303, 307, 308):
    up(
        f"redirect-{code}-unfollowed",
        f"Redirects with {code}, and redirects are not followed.",
        redirect("/end", code),
        http_status=code,
    )
    up(
        f"redirect-{code}",
        f"Redirects with {code} to an existing page.",
        {"/": redirect("/end", code), "/end": END},
        follow_redirects=True,
    )
for location, name in ((None, "without-location"), ("http://[", "to-nonsense")):
    up(
        f"redirect-{name}-unfollowed",
        "Redirects nowhere, and redirects are not followed.",
        [answer(302)] if location is None else redirect(location),
        http_status=302,
    )
for code in (300, 304, 305):
    up(
        f"redirect-{code}-final",
        f"Answers {code} with a Location, which must not be followed.",
        [answer(code, b"", "Location: /nowhere")],
        http_status=code,
        follow_redirects=True,
    )

for name, about, location, path in (
    ("relative", "Redirects to a relative reference.", "sub/../end", "/end"),
    ("query", "Redirects to a query only.", "?page=2", "/?page=2"),
    ("fragment", "Redirects to an address with a fragment.", "/end#part", "/end"),
    ("blanks", "Redirects to an address with blanks.", "/the end?a b", "/the%20end?a%20b"),
    ("utf-8", "Redirects to a non-ASCII address.", "/grün", "/gr%C3%BCn"),
    ("padded", "Redirects to an address with blanks around it.", "   /end  ", "/end"),
):
    up(
        f"redirect-{name}",
        about,
        {"/": redirect(location), path: END},
        follow_redirects=True,
        content_rules=[{"type": "text_contains", "value": "the end"}],
    )
up(
    "redirect-other-origin",
    "Redirects to another origin.",
    {"main": Place(redirect("@away@/x")), "away": Place(END)},
    follow_redirects=True,
)
up(
    "redirect-other-name",
    "Redirects to another host by name.",
    {"main": Place(redirect("@away@/x")), "away": Place(END, name="away.redirect.test")},
    zone={"away.redirect.test": Name(("127.0.0.1",))},
    follow_redirects=True,
)
up(
    "redirect-to-https",
    "Redirects from http to https.",
    {"main": Place(redirect("@away@/x")), "away": Place(END, tls="good")},
    follow_redirects=True,
    check_ssl=True,
)
up(
    "redirect-to-http",
    "Redirects from https to http.",
    {"main": Place(redirect("@away@/x"), tls="good"), "away": Place(END)},
    follow_redirects=True,
)
down(
    "redirect-two-locations",
    "Redirects with two different Locations.",
    {"/": [answer(302, b"", "Location: /end", "Location: /wrong")], "/end": END},
    "connection_failure",
    "not valid HTTP",
    http_status=302,
    follow_redirects=True,
)
up(
    "redirect-same-location-twice",
    "Redirects with the same Location twice.",
    {"/": [answer(302, b"", "Location: /end", "Location: /end")], "/end": END},
    follow_redirects=True,
)
up(
    "redirect-endless-body",
    "Redirects with a body that does not end.",
    {"/": ENDLESS, "/end": END},
    follow_redirects=True,
)
up("redirect-ten", "Redirects ten times.", chain(10), follow_redirects=True)
up(
    "redirect-post-302",
    "Redirects a POST with 302, which becomes a GET.",
    only("GET", redirect("/end", 302)),
    method="POST",
    follow_redirects=True,
)
up(
    "redirect-post-307",
    "Redirects a POST with 307, which stays a POST.",
    only("POST", redirect("/end", 307)),
    method="POST",
    request_body="{}",
    follow_redirects=True,
)
up(
    "redirect-head",
    "Redirects a HEAD, which stays a HEAD.",
    only("HEAD", redirect("/end")),
    method="HEAD",
    follow_redirects=True,
)

down(
    "redirect-eleven",
    "Redirects eleven times.",
    chain(11),
    "redirect_failure",
    "more than 10",
    http_status=302,
    follow_redirects=True,
)
nowhere: tuple[tuple[str, str, Mapping[str, Script], str], ...] = (
    ("itself", "Redirects to itself.", {"/": redirect("/")}, "circle"),
    ("circle", "Redirects in a circle of two.", {"/": redirect("/a"), "/a": redirect("/")}, "circle"),
    ("no-location", "Redirects without a Location.", {"/": [answer(302)]}, "without a Location"),
    ("empty-location", "Redirects with an empty Location.", {"/": redirect("")}, "without a Location"),
    ("ftp", "Redirects to ftp.", {"/": redirect("ftp://127.0.0.1/")}, "only http and https"),
    ("file", "Redirects to a file.", {"/": redirect("file:///etc/passwd")}, "only http and https"),
    ("javascript", "Redirects to a script.", {"/": redirect("javascript:alert(1)")}, "only http and https"),
    ("no-host", "Redirects to an address without a host.", {"/": redirect("http://")}, "names no host"),
    ("open-bracket", "Redirects to half an address.", {"/": redirect("http://[::1")}, "leads nowhere"),
    ("bad-port", "Redirects to port 99999.", {"/": redirect("http://127.0.0.1:99999/")}, "leads nowhere"),
    ("control", "Redirects to an address with a tab.", {"/": redirect("http://a\tb/")}, "leads nowhere"),
)
for name, about, routes, words in nowhere:
    down(f"redirect-{name}", about, routes, "redirect_failure", words, http_status=302, follow_redirects=True)
down(
    "redirect-to-404",
    "Redirects to a page that is not there.",
    {"/": redirect("/gone")},
    "http_failure",
    "404",
    http_status=404,
    follow_redirects=True,
)
down(
    "redirect-expected-302",
    "Redirects to 200 where the final answer is to be 302.",
    {"/": redirect("/end"), "/end": END},
    "http_failure",
    "200 instead of the expected 302",
    http_status=200,
    follow_redirects=True,
    expect_status=302,
)
down(
    "redirect-to-closed-port",
    "Redirects to a port without a listener.",
    {"main": Place(redirect("@away@/")), "away": Place(Closed())},
    "connection_failure",
    "refused",
    follow_redirects=True,
)
down(
    "redirect-to-unknown-name",
    "Redirects to a name that does not exist.",
    redirect("http://gone.redirect.test/"),
    "dns_failure",
    "does not exist",
    follow_redirects=True,
)
down(
    "redirect-to-stall",
    "Redirects to a page that is never answered.",
    {"/": redirect("/stall"), "/stall": [Hang()]},
    "timeout",
    "did not answer",
    follow_redirects=True,
    timeout_ms=1000,
)
down(
    "redirect-slow-hops",
    "Takes 0.4 s for each of four redirects, together more than the one deadline.",
    chain(4, seconds=0.4),
    "timeout",
    "No result within 1000 ms",
    follow_redirects=True,
    timeout_ms=1000,
)
