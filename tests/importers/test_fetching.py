"""All pages of UptimeRobot's API, from a server with the pagination of its two versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from core.cli import UsageError
from pulsekeeper.importers import fetching, uptimerobot
from pulsekeeper.importers.mapped import UnreadableFileError
from tests.targets.server import Seen, Site, TargetServer, answer

KEY = "u1-secret"


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


def v2(seen: Seen) -> list[bytes]:
    form = {name: values[0] for name, values in parse_qs(seen.body.decode()).items()}
    if form["api_key"] != KEY:
        return [answer(200, b'{"stat": "fail", "error": {"type": "invalid_parameter"}}')]
    offset, limit = int(form["offset"]), min(50, int(form["limit"]))
    monitors = [
        {"id": number, "friendly_name": f"M{number}", "url": "http://shop.example/", "type": 1, "status": 2}
        for number in range(120)[offset : offset + limit]
    ]
    pagination = {"offset": offset, "limit": limit, "total": 120}
    return [answer(200, json.dumps({"stat": "ok", "pagination": pagination, "monitors": monitors}).encode())]


def v3(seen: Seen) -> list[bytes]:
    if seen.header("authorization") != f"Bearer {KEY}":
        return [answer(401, b"{}")]
    query = {name: int(values[0]) for name, values in parse_qs(urlsplit(seen.path).query).items()}
    start = query.get("cursor", 0)
    numbers = range(450)[start : start + min(200, query["limit"])]
    data = [{"id": n, "friendlyName": f"M{n}", "url": "http://shop.example/", "type": "HTTP"} for n in numbers]
    # As it is behind UptimeRobot's proxy: another scheme, and here even another host.
    more = f"http://other.example/v3/monitors?cursor={numbers.stop}" if numbers.stop < 450 else None
    return [answer(200, json.dumps({"nextLink": more, "data": data}).encode())]


@pytest.mark.parametrize(
    ("routes", "path", "count", "pages"), [(v2, "/v2/getMonitors", 120, 3), (v3, "/v3/monitors", 450, 3)]
)
def test_all_pages(targets: TargetServer, routes: object, path: str, count: int, pages: int) -> None:
    site: Site = targets.serve(routes)  # type: ignore[arg-type]  # one of two functions
    found = uptimerobot.read(fetching.fetch(site.url(path), key=KEY)).monitors
    assert [each.name for each in found] == [f"M{number}" for number in range(count)]
    assert len(site.seen) == pages
    assert KEY not in "".join(seen.path for seen in site.seen)
    with pytest.raises(UnreadableFileError) as refused:
        fetching.fetch(site.url(path), key="wrong")
    assert "wrong" not in str(refused.value)


def test_a_busy_api_is_asked_again(targets: TargetServer) -> None:
    asked: list[str] = []

    def busy(seen: Seen) -> list[bytes]:
        asked.append(seen.path)
        return [answer(429, b"{}", "Retry-After: 1")] if len(asked) == 2 else v3(seen)

    assert len(uptimerobot.read(fetching.fetch(targets.serve(busy).url("/v3/monitors"), key=KEY)).monitors) == 450
    assert len(asked) == 4


def test_a_saved_page_says_what_it_lacks() -> None:
    page = {"stat": "ok", "pagination": {"offset": 0, "limit": 50, "total": 55}, "monitors": [{"friendly_name": "M"}]}
    last = uptimerobot.read(json.dumps(page)).monitors[-1]
    assert (last.name, last.body, last.notes[0].field) == ("54 more monitors", None, "pagination")
    assert "1 of 55" in last.notes[0].text
    last = uptimerobot.read(
        json.dumps({"data": [], "nextLink": "https://api.uptimerobot.com/v3/monitors?cursor=1"})
    ).monitors[-1]
    assert (last.name, last.body) == ("More monitors", None)


@pytest.mark.parametrize("end", ["mön", "#x", "?", " "])
def test_an_address_that_is_none(end: str) -> None:
    for address in (f"https://api.example/v3/monitors{end}", "https://[::1/v3/monitors", "https://x:y/"):
        with pytest.raises(UnreadableFileError, match="not the address"):
            fetching.fetch(address, key=KEY)


def test_a_proxy_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http:/proxy")
    with pytest.raises(UsageError, match="address of the proxy"):
        fetching.fetch("http://api.example/v3/monitors", key=KEY)


def test_a_page_that_comes_again_is_not_imported_twice(targets: TargetServer) -> None:
    page = answer(200, b'{"data": [{"id": 1}], "nextLink": "https://x/?cursor=1"}')
    with pytest.raises(UnreadableFileError, match="same page again"):
        fetching.fetch(targets.serve([page] * 2).url("/v3/monitors"), key=KEY)


@pytest.mark.parametrize(
    ("script", "words"),
    [([answer(500)], "status 500"), ([answer(200, b"[]")], "not an object"), ([answer(200, b"{}")], "has no data")],
)
def test_what_is_no_such_api(targets: TargetServer, script: list[bytes], words: str) -> None:
    with pytest.raises(UnreadableFileError, match=words):
        fetching.fetch(targets.serve(script).url("/v3/monitors"), key=KEY)
