"""Inputs of the pages: every address of `config.urls` with queries at their limits, and every form of a page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, urlencode, urljoin

from benchmarks.straining.measuring import Input
from benchmarks.straining.values import SHORT, texts

TOKEN = "a" * 32
"""CSRF token of the cookie and of the form: a stranger may choose any."""
QUERIES = (
    "q",
    "status",
    "type",
    "sort",
    "page",
    "project",
    "tag",
    "from",
    "to",
    "range",
    "cursor",
    "before",
    "state",
    "next",
)
ENDING = re.compile(r"delete|logout|end|revoke|remove|disconnect|take|export|/edit\b.*delete")
"""Forms that end what later inputs need."""
Names = Mapping[str, str]


class FormReader(HTMLParser):
    """Collects the forms of a page: their action, and their fields with the values that they have."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[tuple[str, dict[str, str]]] = []
        self._open: dict[str, str] | None = None

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        if tag == "form" and given.get("method", "").lower() == "post":
            self._open = {}
            self.forms.append((given.get("action", ""), self._open))
        elif tag in ("input", "textarea", "select", "button") and self._open is not None and given.get("name"):
            if given.get("type") not in ("checkbox", "radio") or "checked" in given:
                self._open.setdefault(given["name"], given.get("value", ""))
            else:
                self._open.setdefault(given["name"], "")
        elif tag == "option" and self._open and "selected" in given:
            self._open[list(self._open)[-1]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None


class Browser:
    """Makes requests with the cookie of a session, or without one."""

    def __init__(self, who: str, names: Names, cookie: str | None) -> None:
        self.who, self.names = who, names
        self.cookie = f"csrftoken={TOKEN}" + (f"; sessionid={cookie}" if cookie else "")

    def get(self, path: str, query: str = "", *, title: str = "", **headers: str) -> Input:
        return self._input("GET", path + (f"?{query}" if query else ""), b"", title or "", headers, name=path)

    def post(self, path: str, fields: Any, *, title: str = "") -> Input:
        pairs = list(fields.items()) if isinstance(fields, dict) else fields
        body = urlencode([*pairs, ("csrfmiddlewaretoken", TOKEN)], errors="replace").encode()
        return self.send(path, body, "application/x-www-form-urlencoded", title=title)

    def multipart(self, path: str, parts: list[tuple[str, bytes]], *, title: str) -> Input:
        lines = [
            b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (name.encode(), value)
            for name, value in [*parts, ("csrfmiddlewaretoken", TOKEN.encode())]
        ]
        return self.send(path, b"".join(lines) + b"--b--\r\n", "multipart/form-data; boundary=b", title=title)

    def send(self, path: str, body: bytes, kind: str, *, title: str) -> Input:
        headers = {"Content-Type": kind, "Content-Length": str(len(body))}
        return self._input("POST", path, body, title, headers, name=path)

    def _input(
        self, method: str, target: str, body: bytes, title: str, headers: Mapping[str, str], *, name: str
    ) -> Input:
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", f"Cookie: {self.cookie}"]
        lines += [f"{key.replace('_', '-')}: {value}" for key, value in headers.items()]
        head = "\r\n".join([*lines, "Connection: close", "", ""])
        return Input(self.who, f"{method.lower()} {name[:80]} {title}".strip(), head.encode("utf-8", "replace") + body)


def addresses(patterns: list[str], names: Names) -> list[str]:
    """Return the paths of these patterns of `config.urls` with the names in their places.

    Without the stream of changes, which does not end; `benchmarks/pages.py` measures it.
    """
    word = {
        "monitor_id": "monitor_id", "project_id": "project_id", "member_id": "member_id", "token_id": "token_id",
        "incident_id": "incident_id", "channel_id": "channel_id", "delivery_id": "delivery_id", "page_id": "page_id",
        "window_id": "window_id", "note_id": "note_id", "session_id": "session_id", "slug": "slug", "key": "badge",
    }  # fmt: skip
    found = []
    for pattern in patterns:
        path = re.sub(r"<(?:\w+:)?(\w+)>", lambda part: names.get(word.get(part[1], ""), "1"), "/" + pattern)
        path = re.sub(r"\(\?P<\w+>[^)]*\)", "1", path).replace("^", "").replace("$", "").replace("\\", "")
        if "(" not in path and not path.startswith(("/v1", "/changes")):
            found.append(path)
    return list(dict.fromkeys(found))


def public_addresses(names: Names) -> list[str]:
    """Return the addresses of status pages, their documents, badges and links, which `config.urls` does not have."""
    pages = [f"/status/{slug}" for slug in (names["slug"], f"{names['slug']}-locked", "nothing")]
    ends = (
        "",
        ".json",
        ".atom",
        "/logo",
        "/logo.png",
        "/subscribe",
        "/history",
        "/history.json",
        "/unlock",
        "/password",
    )
    badges = [f"/badge/{names['badge']}/{kind}.svg" for kind in ("status", "uptime", "uptime-30", "nothing")]
    links = [f"/status-subscriptions/{verb}/{'a' * 100}" for verb in ("confirm", "unsubscribe")]
    return ["/", *(page + end for page in pages for end in ends), *badges, *links]


def looks(browser: Browser, paths: list[str]) -> Iterator[Input]:
    """Every page, and those of lists with queries at their limits."""
    for path in paths:
        yield browser.get(path)
        if path.startswith("/admin/") and path.count("/") > 2:
            continue
        for name in QUERIES:
            for title, text in (("long", "\U0001f600" * 4_000), ("number", "9" * 5_000), ("odd", "%_\\'\"<" * 1_000)):
                yield browser.get(path, f"{name}={quote(text)[:SHORT]}", title=f"{name} {title}")
        yield browser.get(path, "&".join(f"{name}=1" for name in QUERIES * 500)[:SHORT], title="many parameters")


def forms(browser: Browser, page: str, html: str) -> Iterator[Input]:
    """Every form of a page: each field at its limits, and bodies that are costly to read."""
    reader = FormReader()
    reader.feed(html)
    for action, fields in reader.forms:
        path = urljoin(page, action or page)
        if ENDING.search(path):
            continue
        fields = {name: value for name, value in fields.items() if name != "csrfmiddlewaretoken"}
        yield browser.post(path, fields, title="unchanged")
        for name in fields:
            for title, text in texts(2_048, limit=SHORT * 2):
                yield browser.post(path, fields | {name: text}, title=f"{name}: {title}")
            yield browser.post(path, [*fields.items(), *[(name, "1")] * 1_900], title=f"{name} 1,900 times")
        yield from bodies(browser, path, list(fields.items()))


def bodies(browser: Browser, path: str, fields: list[tuple[str, str]]) -> Iterator[Input]:
    yield browser.post(path, [*fields, *((f"x{number}", "") for number in range(1_900))], title="1,900 fields")
    yield browser.post(path, [*fields, *((f"x{number}", "") for number in range(10_000))], title="10,000 fields")
    yield browser.post(path, [("csrfmiddlewaretoken", "é" * 200_000)], title="a long token")
    yield browser.send(path, b"%f0%9f%98%80" * 20_000, "application/x-www-form-urlencoded", title="one escaped name")
    yield browser.send(path, b"&" * 1_500_000, "application/x-www-form-urlencoded", title="1.5 MB of ampersands")
    yield browser.send(path, b"a=" + b"+" * 250_000, "application/x-www-form-urlencoded", title="blanks")
    yield browser.multipart(path, [(f"x{number}", b"") for number in range(1_000)], title="1,000 parts")
    yield browser.multipart(path, [(f"x{number}", b"") for number in range(15_000)], title="15,000 parts")
    yield browser.multipart(path, [("a" * 900, b"x" * 1_400_000)], title="a part of 1.4 MB")
    yield browser.send(
        path, b"--b\r\n" + b"X: y\r\n" * 200_000, "multipart/form-data; boundary=b", title="headers of a part"
    )
    yield browser.send(path, b"--b" * 400_000, "multipart/form-data; boundary=b", title="boundaries without parts")
    yield browser.send(path, b"x" * 1_500_000, "multipart/form-data; boundary=" + "b" * 200, title="no boundary")
    yield browser.send(path, b"{" * 1_500_000, "application/json", title="not a form")
