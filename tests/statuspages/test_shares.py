"""Limits for strangers on public pages: concurrent renderings, memory of the broker, and size of forms."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client

from accounts.models import User
from core.clock import utc_now
from core.errors import TooManyRequests
from projects.access import Caller
from statuspages import caching, content
from statuspages.caching import fetch
from statuspages.services import add_update, create_note
from tests.processes.waiting import until
from tests.statuspages.making import look, make_page

PATIENCE_SEC = 30


@pytest.fixture(autouse=True)
def _empty() -> None:
    cache.clear()
    caching.clear_local_caches()


@pytest.mark.usefixtures("db")
def test_renderings_that_strangers_ask_for_run_one_at_a_time_and_a_reader_goes_first() -> None:
    order: list[str] = []
    end = threading.Event()
    running: list[int] = []

    def make(name: str) -> bytes:
        running.append(1)
        order.append(name)
        assert end.wait(PATIENCE_SEC)
        assert len(running) == 1
        running.pop()
        return name.encode()

    def read(address: str, name: str) -> str:
        try:
            return fetch(name, "text/plain", lambda: make(name), users=(address, "owner:1")).body.decode()
        except TooManyRequests:
            return "refused"

    def present(user: str) -> int:
        """Return the number of renderings that run or wait."""
        return sum(user in ticket.users for ticket in caching._turns._waiting) + (
            order.count("month-0") and user == "attacker"
        )

    with ThreadPoolExecutor(32) as pool:
        asked: list[Any] = []
        for month in range(12):
            asked.append(pool.submit(read, "attacker", f"month-{month}"))
            expected = len(asked)
            if expected <= 4:
                until(lambda expected=expected: present("attacker") == expected, PATIENCE_SEC, "it waits")  # type: ignore[misc]
            else:
                assert asked[-1].result(PATIENCE_SEC) == "refused", "an address has four"
        reader = pool.submit(read, "reader", "page")
        until(lambda: present("reader"), PATIENCE_SEC, "it waits")
        end.set()
        assert reader.result(PATIENCE_SEC) == "page"
        assert [one.result(PATIENCE_SEC) for one in asked[:4]] == [f"month-{month}" for month in range(4)]
    assert order[1] == "page"


@pytest.mark.usefixtures("db")
def test_a_stale_copy_is_shown_if_there_is_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch("key", "text/plain", lambda: b"old").body == b"old"
    caching.clear_local_caches()
    monkeypatch.setattr(caching, "FRESH_SEC", 0)
    monkeypatch.setattr(caching._turns, "_patience_sec", 0.01)
    with caching._turns.turn("another reader"):
        assert fetch("key", "text/plain", lambda: b"new").body == b"old"
        with pytest.raises(TooManyRequests):
            fetch("other", "text/plain", lambda: b"new")


@pytest.mark.usefixtures("db")
def test_an_owner_fills_a_part_of_the_broker_and_pages_work_without_it() -> None:
    page = bytes(range(256)) * 100

    def kept() -> int:
        return sum(cache.get(f"key-{number}") is not None for number in range(20))

    noise = [random.Random(number).randbytes(500_000) for number in range(20)]
    for number, body in enumerate(noise):
        found = fetch(f"key-{number}", "text/plain", lambda body=body: body, users=("reader", "owner:1"))  # type: ignore[misc]
        assert found.body == body
    assert kept() == 8, "an owner has 4 MiB"
    assert fetch("another", "text/plain", lambda: page, users=("reader", "owner:2")).body == page
    assert cache.get("another") is not None
    caching.clear_local_caches()
    assert fetch("another", "text/plain", lambda: b"").body == page


def test_a_page_shows_so_many_notes_and_updates(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MOST_NOTES", 2)
    monkeypatch.setattr(content, "MOST_UPDATES", 3)
    page, caller = make_page(user, []), Caller(user)
    given: dict[str, Any] = {"status": "investigating", "text": "Update 0"}
    for number in range(3):
        note = create_note(caller, page.public_id, {"title": f"Note {number}", **given}, now=utc_now())
    for number in range(1, 5):
        add_update(caller, page.public_id, note.public_id, {**given, "text": f"Update {number}"}, now=utc_now())
    shown = look(f"/status/{page.slug}.json").json()["incidents"]
    assert [one["title"] for one in shown] == ["Note 2", "Note 1"]
    assert [update["text"] for update in shown[0]["updates"]] == ["Update 4", "Update 3", "Update 2"]


@pytest.mark.parametrize(
    "path", ["/status/{slug}/unlock", "/status/{slug}/subscribe", "/account/login/", "/monitors/new"]
)
def test_strangers_send_small_forms_only(user: User, path: str) -> None:
    page = make_page(user, [], **({"password": "open sesame"} if "unlock" in path else {}))
    client, path = Client(), path.format(slug=page.slug)
    form = "application/x-www-form-urlencoded"
    assert client.post(path, "a=" + "x" * 20_000, content_type=form).status_code == 413
    assert client.post(path, {f"field{number}": "x" for number in range(200)}).status_code == 413, "in parts"
    assert client.post(path, "a=x", content_type=form).status_code != 413


def test_static_files_are_compressed_once(db: None) -> None:
    client = Client()
    path, packed = "/static/pulsekeeper/status.css", {"accept-encoding": "gzip"}
    first, second = (client.get(path, headers=packed) for _ in range(2))
    assert (first["Content-Encoding"], first.content) == ("gzip", second.content)
    plain = client.get(path)
    assert "Content-Encoding" not in plain
    assert first["Vary"] == plain["Vary"] == "Accept-Encoding"
    plain.close()
