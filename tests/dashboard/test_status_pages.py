"""The pages that manage status pages."""

from __future__ import annotations

import io
import re
import tracemalloc
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from PIL import Image

from accounts.models import User
from core.clock import utc_now
from dashboard.status_pages import MONITORS
from projects.access import Caller
from statuspages.models import NoteUpdate, PageMonitor, PageNote, StatusPage
from statuspages.services import create_note, create_page
from tests.factories import MonitorFactory, UserFactory
from tests.statuspages.making import make_page, picture

HOSTILE = '<script>alert(1)</script> & "quoted"'
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quoted&quot;"


def key_in(page: Any) -> str:
    found = re.search(r'name="form_key" value="(\w+)"', page.content.decode())
    assert found is not None
    return found[1]


def text_of(answer: Any) -> str:
    text: str = answer.content.decode()
    return text


def add(web: Client, **fields: Any) -> Any:
    given = {"form_key": key_in(web.get("/status-pages/new")), "theme": "auto", "published": "on"}
    return web.post("/status-pages/new", given | {"name": "Shop", "slug": "shop-status"} | fields)


def test_without_a_page_it_leads_on(web: Client) -> None:
    text = text_of(web.get("/status-pages"))
    assert "No status pages" in text
    assert "/status-pages/new" in text


def test_a_page_is_made_with_monitors_under_a_heading(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, name="db7", up=True)
    answer = add(web, add=[monitor.public_id], add_to="Shop", password="open sesame")
    page = StatusPage.objects.get()
    assert answer.url == f"/status-pages/{page.public_id}"
    assert [(item.group.name, item.name) for item in PageMonitor.objects.all()] == [("Shop", "db7")]
    assert page.password_hash
    assert page.published
    assert "Shop" in text_of(web.get("/status-pages"))


@pytest.mark.parametrize(
    ("name", "slug"), [("Shop & Café status", "shop-cafe-status"), ("_Éa_b-", "ea-b"), ("x" * 200, "x" * 64)]
)
def test_the_address_is_derived_from_the_name(web: Client, name: str, slug: str) -> None:
    add(web, name=name, slug="")
    assert StatusPage.objects.get().slug == slug
    again = text_of(add(web, name=name, slug=""))
    assert "Is already used by another status page." in again
    assert f'value="{slug}"' in again


def test_a_name_without_latin_letters_needs_an_address(web: Client) -> None:
    assert "Enter an address" in text_of(add(web, name="Статус", slug=""))
    assert not StatusPage.objects.exists()


def test_sent_twice_it_makes_one(web: Client) -> None:
    fields = {"form_key": key_in(web.get("/status-pages/new")), "name": "A", "slug": "a-b", "theme": "auto"}
    answers = [web.post("/status-pages/new", fields) for _ in range(2)]
    assert answers[0]["Location"] == answers[1]["Location"]
    assert StatusPage.objects.count() == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"slug": "No Spaces"}, "must be 1 to 64 characters of a-z"),
        ({"slug": "admin"}, "is reserved"),
        ({"accent": "#ffff00"}, "has too little contrast on the light theme"),
        ({"custom_domain": "status.example.com"}, "is not a domain that this deployment"),
        ({"password": "short"}, "at least 8 characters"),
    ],
)
def test_what_does_not_hold_is_said_and_what_was_typed_stays(web: Client, fields: dict[str, str], reason: str) -> None:
    text = text_of(add(web, description=HOSTILE, **fields))
    assert reason.lower() in text.lower()
    assert ESCAPED in text
    assert HOSTILE not in text
    assert not StatusPage.objects.exists()


def test_monitors_are_renamed_moved_and_removed(web: Client, user: User) -> None:
    first, second, third = (MonitorFactory(owner=user, name=f"db{n}") for n in (1, 2, 3))
    page = make_page(user, [first, second])
    path = f"/status-pages/{page.public_id}/edit"
    assert "Shown 1" in text_of(web.get(path))
    fields: dict[str, Any] = {
        "name": "Renamed",
        "slug": page.slug,
        "theme": "dark",
        "add": [third.public_id],
        "add_to": "More",
    }
    for monitor, name, place in ((first, "One", 2), (second, HOSTILE, 1)):
        key = monitor.public_id
        fields |= {f"name-{key}": name, f"group-{key}": "Shop", f"place-{key}": place}
    assert web.post(path, fields).status_code == 302
    shown = [(item.group.name, item.name) for item in PageMonitor.objects.order_by("pk")]
    assert shown == [("Shop", HOSTILE), ("Shop", "One"), ("More", "db3")]
    assert ESCAPED in text_of(web.get(path))
    key = third.public_id
    rest = {f"name-{key}": "db3", f"group-{key}": "More", f"place-{key}": 3, f"gone-{key}": "on", "add": []}
    web.post(path, fields | rest | {f"gone-{first.public_id}": "on"})
    assert [item.monitor for item in PageMonitor.objects.all()] == [second]


def test_a_long_page_is_edited_in_parts(web: Client, user: User) -> None:
    monitors = [MonitorFactory(owner=user, name=f"db{n}") for n in range(1, MONITORS + 3)]
    page = make_page(user, monitors)
    path = f"/status-pages/{page.public_id}/edit"
    fields: dict[str, Any] = {"name": "Shop", "slug": page.slug, "theme": "auto"}
    text = text_of(web.get(path, {"first": "x"}))
    assert text.count('name="place-') == MONITORS
    assert "first=101" in text
    rest = text_of(web.get(path, {"first": 101}))
    assert re.findall(r'name="place-(\w+)"', rest) == [one.public_id for one in monitors[100:]]
    moved, gone = (one.public_id for one in monitors[100:])
    fields |= {f"name-{moved}": "Moved", f"group-{moved}": "Shop", f"place-{moved}": 0}
    fields |= {f"name-{gone}": "x", f"group-{gone}": "", f"place-{gone}": 102}
    before = list(PageMonitor.objects.order_by("pk").values_list("monitor_id", "name", "group__name"))
    assert "This field is required" in text_of(web.post(path, fields | {f"place-{moved}": ""}))
    assert web.post(f"{path}?first=101", fields | {f"gone-{gone}": "on"}).status_code == 302
    after = list(PageMonitor.objects.order_by("pk").values_list("monitor_id", "name", "group__name"))
    assert after == [(monitors[100].pk, "Moved", "Shop"), *before[:100]]


def test_a_password_stays_until_it_is_removed(web: Client, user: User) -> None:
    page = make_page(user, [], password="open sesame")
    path, fields = f"/status-pages/{page.public_id}/edit", {"name": "A", "slug": page.slug, "theme": "auto"}
    web.post(path, fields)
    assert StatusPage.objects.get().password_hash == page.password_hash
    web.post(path, fields | {"remove_password": "on"})
    assert StatusPage.objects.get().password_hash == ""


def test_notes_are_written_updated_and_deleted(web: Client, user: User) -> None:
    page = make_page(user, [])
    path = f"/status-pages/{page.public_id}"
    note = {"form_key": key_in(web.get(path)), "title": HOSTILE, "status": "investigating", "text": HOSTILE}
    assert web.post(f"{path}/notes", note).status_code == 302
    text = text_of(web.get(path))
    assert ESCAPED in text
    assert HOSTILE not in text
    stored = page.notes.get()
    update = f"{path}/notes/{stored.public_id}/updates"
    refused = web.post(update, {f"{stored.public_id}-status": "resolved", f"{stored.public_id}-text": ""})
    assert refused.status_code == 422
    web.post(update, {f"{stored.public_id}-status": "resolved", f"{stored.public_id}-text": "Done."})
    stored.refresh_from_db()
    assert stored.resolved_at is not None
    web.post(f"{path}/notes/{stored.public_id}/delete")
    assert not page.notes.exists()


def test_a_logo_is_put_there_and_taken_away(web: Client, user: User) -> None:
    page = make_page(user, [])
    path = f"/status-pages/{page.public_id}/logo"
    upload = io.BytesIO(picture(size=(1_000, 600)))
    upload.name = "logo.png"
    assert web.post(path, {"logo": upload}).status_code == 302
    with Image.open(io.BytesIO(StatusPage.objects.get().logo.image)) as shown:
        assert (shown.format, shown.size) == ("WEBP", (512, 307))
    broken = io.BytesIO(b"<svg xmlns='http://www.w3.org/2000/svg'/>")
    broken.name = "logo.svg"
    refused = web.post(path, {"logo": broken})
    assert refused.status_code == 422
    assert "not a readable picture" in text_of(refused)
    web.post(f"{path}/remove")
    assert not hasattr(StatusPage.objects.get(), "logo")


def test_no_other_account_sees_or_changes_it(web: Client) -> None:
    stranger = UserFactory()
    page = make_page(stranger, [])
    written = {"title": "x", "status": "investigating", "text": "x"}
    note = create_note(Caller(stranger), page.public_id, written, now=utc_now())
    path = f"/status-pages/{page.public_id}"
    assert page.name not in text_of(web.get("/status-pages"))
    assert {web.get(path).status_code, web.get(f"{path}/edit").status_code} == {404}
    notes = f"/notes/{note.public_id}"
    for rest in ("/delete", "/logo", "/logo/remove", "/notes", f"{notes}/updates", f"{notes}/delete"):
        assert web.post(path + rest).status_code == 404
    assert StatusPage.objects.count() == 1


def test_it_is_deleted(web: Client, user: User) -> None:
    page = make_page(user, [])
    assert web.post(f"/status-pages/{page.public_id}/delete")["Location"] == "/status-pages"
    assert not StatusPage.objects.exists()


def test_a_page_with_many_notes_and_monitors_stays_small(web: Client, user: User) -> None:
    page = make_page(user, [MonitorFactory(owner=user) for _ in range(120)])
    notes = PageNote.objects.bulk_create(PageNote(page=page, title="Slow", created_at=utc_now()) for _ in range(10))
    NoteUpdate.objects.bulk_create(
        NoteUpdate(note=note, status="investigating", text=f"{number} {'x' * 4_900}", at=utc_now())
        for note in notes
        for number in range(20)
    )
    path = f"/status-pages/{page.public_id}"
    web.get(path)
    tracemalloc.start()
    try:
        text = text_of(web.get(path))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000  # the updates alone are 1 MB, and more in HTML
    finally:
        tracemalloc.stop()
    assert re.findall(r"<p>(\d+) x", text) == ["15", "16", "17", "18", "19"] * 10
    assert "Shown 100" in text
    assert "Shown 101" not in text
    assert "120 monitors in all" in text


def test_the_list_counts_monitors_without_reading_them(web: Client, user: User) -> None:
    for count in (0, 1, 3):
        make_page(user, [MonitorFactory(owner=user) for _ in range(count)])
    with CaptureQueriesContext(connection) as captured:
        text = text_of(web.get("/status-pages"))
    assert re.findall(r">(\d) monitors?<", text) == ["0", "1", "3"]
    assert not [query for query in captured if 'SELECT "statuspages_pagemonitor"."id"' in query["sql"]]


def test_the_list_names_tags_that_select_monitors(web: Client, user: User) -> None:
    named = [{"monitor_id": MonitorFactory(owner=user).public_id, "name": "Shop"}]
    for name, monitors, tags in (("Tags", [], ["web", "db"]), ("Both", named, ["web"])):
        groups = [{"name": "", "monitors": monitors, "monitor_tags": tags}]
        create_page(Caller(user), {"name": name, "slug": name.lower(), "groups": groups}, now=utc_now())
    text = text_of(web.get("/status-pages"))
    assert re.findall(r'data-label="Shows">([^<]*)<', text) == ["1 monitor, tag web", "tags web, db"]
