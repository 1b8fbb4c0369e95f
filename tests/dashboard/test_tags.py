"""Tags on the dashboard: the form, chips, and the filter of the overview."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from accounts.models import User
from dashboard.monitors import forms
from monitors.models import Monitor
from monitors.services import create_monitor
from projects.access import Caller
from tests.dashboard.test_monitor_pages import created, errors_in, typed
from tests.factories import UserFactory
from tests.helpers import NOON


def tagged(user: User, *tags: str, **given: object) -> Monitor:
    return create_monitor(Caller(user), {"url": "http://shop.example/", "tags": list(tags), **given}, now=NOON)


def options_in(html: str) -> list[str]:
    (names,) = re.findall(r'<datalist id="tag-names">(.*?)</datalist>', html, re.DOTALL)
    return re.findall(r'<option value="([^"]*)">', names)


def test_the_form_takes_tags_separated_by_commas(web: Client, user: User) -> None:
    answer = web.post("/monitors/new", typed(type="heartbeat", tags=" Web , , Größe &co,db,"))
    assert errors_in(answer.content.decode()) == []
    monitor = created(user)
    assert monitor.tags == ["Web", "Größe &co", "db"]
    path = f"/monitors/{monitor.public_id}/edit"
    assert 'value="Web, Größe &amp;co, db"' in web.get(path).content.decode()
    web.post(path, typed(type="heartbeat", tags="db, Web"))
    monitor.refresh_from_db()
    assert (monitor.tags, monitor.tag_keys) == (["db", "Web"], ["db", "web"])
    web.post(path, typed(type="heartbeat", tags=""))
    monitor.refresh_from_db()
    assert monitor.tags == []


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        (f"web, {'a' * 41}", "cannot have more than 40 characters."),
        ("web, WEB", "more than once"),
        (", ".join(map(str, range(21))), "no more than 20"),
    ],
)
def test_the_form_says_which_tag_is_wrong(web: Client, tags: str, said: str) -> None:
    html = web.post("/monitors/new", typed(type="heartbeat", tags=tags)).content.decode()
    assert [said in error for error in errors_in(html)] == [True], errors_in(html)
    assert 'href="#id_tags"' in html


def test_the_form_completes_the_tags_of_the_account(web: Client, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    tagged(user, "web", "B&B", "db")
    tagged(user, "DB", "web")
    tagged(UserFactory(), "foreign")
    assert options_in(web.get("/monitors/new").content.decode()) == ["B&amp;B", "DB", "web"]
    monkeypatch.setattr(forms, "MAX_COMPLETED", 2)
    assert options_in(web.get("/monitors/new").content.decode()) == ["DB", "web"]


def test_a_copy_has_the_tags(web: Client, user: User) -> None:
    monitor = tagged(user, "web", "db")
    assert 'value="web, db"' in web.get(f"/monitors/new?from={monitor.public_id}").content.decode()
