"""Two tabs with the same form: the earlier one keeps its input and does not overwrite unseen changes."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from alerts.models import AlertChannel
from core.clock import to_ms, utc_now
from projects.models import Project
from tests.api.client import Api
from tests.factories import ChannelFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.statuspages.making import make_page

pytestmark = pytest.mark.django_db

HOUR_MS = 3_600_000
HOSTILE = "<script>alert(1)</script>"
REFUSED = "The settings were changed after you opened this form."


class _Form(HTMLParser):
    """The data that a browser submits for the form with `form_etag` and a field `holds`."""

    def __init__(self, page: str, *, holds: str) -> None:
        super().__init__()
        self._forms: list[dict[str, list[str]]] = []
        self._area = self._select = ""
        self.feed(page)
        (self.data,) = (form for form in self._forms if "form_etag" in form and holds in form)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name, kind = given.get("name", ""), given.get("type", "text")
        if tag == "form":
            self._forms.append({})
        elif tag == "select":
            self._select = name
        elif tag == "option" and "selected" in given:
            self._add(self._select, given.get("value", ""))
        elif tag == "textarea":
            self._area = name
            self._add(name, "")
        elif (
            tag == "input"
            and name
            and "disabled" not in given
            and (kind not in ("checkbox", "radio") or "checked" in given)
        ):
            self._add(name, given.get("value", "on" if kind == "checkbox" else ""))

    def handle_data(self, data: str) -> None:
        if self._area:
            self._forms[-1][self._area][-1] += data.removeprefix("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._area = ""

    def _add(self, name: str, value: str) -> None:
        if self._forms:
            self._forms[-1].setdefault(name, []).append(value)


def opened(web: Client, path: str, holds: str = "name") -> dict[str, Any]:
    page = web.get(path)
    assert page.status_code == 200
    return _Form(page.content.decode(), holds=holds).data


def differences(page: str) -> list[tuple[str, str, str]]:
    cell = r'<td data-label="{}">([^<]*)</td>\s*'
    pattern = r'<td class="main">([^<]*)</td>\s*' + cell.format("Yours") + cell.format("Stored")
    rows = re.findall(pattern, page)
    return [(unescape(field), unescape(yours), unescape(stored)) for field, yours, stored in rows]


def _objects(web: Client, user: User) -> dict[str, tuple[str, str, str, Any]]:
    """Return, by kind: the page of the form, the address that it is sent to, a second field, and its two values."""
    monitor = MonitorFactory(owner=user, name="First", interval_sec=300)
    channel = f"/alert-channels/{ChannelFactory(owner=user, name='First').public_id}/edit"
    page = make_page(user, [monitor], name="First")
    start = to_ms(utc_now()) + HOUR_MS
    body = {"name": "First", "starts_at": start, "ends_at": start + HOUR_MS, "monitors": "all"}
    window = Api.signed_in(user).post("/v1/maintenance-windows", body).json["id"]
    return {
        "monitor": (f"/monitors/{monitor.public_id}/edit", "Slow from", "slow_ms", "2s"),
        "channel": (channel, "Reminder interval (hours)", "remind_every_hours", "12"),
        "window": (f"/maintenance/{window}", "Time zone", "time_zone", "Europe/Berlin"),
        "page": (f"/status-pages/{page.public_id}/edit", "Description", "description", HOSTILE),
    }


@pytest.mark.parametrize("kind", ["monitor", "channel", "window", "page"])
def test_an_outdated_form_shows_both_values(web: Client, user: User, kind: str) -> None:
    path, label, field, value = _objects(web, user)[kind]
    mine = opened(web, path)
    assert web.post(path, opened(web, path) | {"name": f"Theirs {HOSTILE}"}).status_code == 302

    refused = web.post(path, mine | {field: value})
    page = refused.content.decode()
    assert REFUSED in page
    assert HOSTILE not in page
    shown = {name: (yours, stored) for name, yours, stored in differences(page)}
    assert ("First", f"Theirs {HOSTILE}") in shown.values()
    assert shown[label][0] in (value, value.replace("_", " "))
    assert len(shown) == 2, "nothing else differs"
    assert opened(web, path)["name"] == [f"Theirs {HOSTILE}"], "nothing was saved"

    again = _Form(page, holds="name").data
    assert web.post(path, again | {"take_stored": "name"}).status_code == 302
    both = opened(web, path)
    assert (both["name"], both[field]) == ([f"Theirs {HOSTILE}"], [value]), "both changes stay"


@pytest.mark.parametrize("kind", ["monitor", "channel", "window", "page"])
def test_the_same_field_is_overwritten_only_once_both_values_were_seen(web: Client, user: User, kind: str) -> None:
    path = _objects(web, user)[kind][0]
    mine = opened(web, path)
    web.post(path, opened(web, path) | {"name": "Theirs"})
    page = web.post(path, mine | {"name": "Mine"}).content.decode()
    assert [row[1:] for row in differences(page)] == [("Mine", "Theirs")]
    web.post(path, opened(web, path) | {"name": "Third"})
    again = web.post(path, _Form(page, holds="name").data).content.decode()
    assert [row[1:] for row in differences(again)] == [("Mine", "Third")], "changed once more"
    assert web.post(path, _Form(again, holds="name").data).status_code == 302
    assert opened(web, path)["name"] == ["Mine"]


@pytest.mark.parametrize("kind", ["monitor", "channel", "window", "page"])
def test_an_outdated_form_with_the_stored_values_is_saved(web: Client, user: User, kind: str) -> None:
    path = _objects(web, user)[kind][0]
    mine = opened(web, path)
    web.post(path, opened(web, path) | {"name": "Same"})
    assert web.post(path, mine | {"name": "Same"}).status_code == 302


def test_a_project_that_was_renamed_concurrently(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user, name="First")
    path = f"/projects/{project.public_id}"
    mine = opened(web, path)
    web.post(f"{path}/rename", opened(web, path) | {"name": "Theirs"})
    page = web.post(f"{path}/rename", mine | {"name": "Mine"}).content.decode()
    assert differences(page) == [("Name", "Mine", "Theirs")]
    assert web.post(f"{path}/rename", _Form(page, holds="name").data).status_code == 302
    assert Project.objects.get().name == "Mine"


def test_secrets_are_not_shown(web: Client, user: User) -> None:
    channel = ChannelFactory(owner=user, url="https://hooks.example/their-token")
    path = f"/alert-channels/{channel.public_id}/edit"
    mine = opened(web, path)
    web.post(path, opened(web, path) | {"url": "https://hooks.example/new-token"})
    page = web.post(path, mine | {"url": "https://hooks.example/my-token"}).content.decode()
    assert [row[1:] for row in differences(page)] == [("the value that you entered", "hidden")]
    assert "their-token" not in page
    assert "new-token" not in page
    assert AlertChannel.objects.get(pk=channel.pk).config["url"] == "https://hooks.example/new-token"

    monitor = MonitorFactory(owner=user)
    path = f"/monitors/{monitor.public_id}/edit"
    rows = {"header-0-name": "X-Key", "header-0-type": ""}
    web.post(path, opened(web, path) | rows | {"header-0-value": "one secret"})
    mine = opened(web, path)
    web.post(path, opened(web, path) | {"header-0-value": "their secret"})
    page = web.post(path, mine | {"header-0-value": "my secret"}).content.decode()
    assert [row[1:] for row in differences(page)] == [("the value that you entered", "hidden")]
    assert "their secret" not in page
    monitor.refresh_from_db()
    assert monitor.header_values == ["their secret"]


def test_the_rows_of_a_monitor_are_compared(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, type="keyword", content_rules=[{"type": "text_contains", "value": "first"}])
    path = f"/monitors/{monitor.public_id}/edit"
    mine = opened(web, path)
    web.post(path, opened(web, path) | {"rule-0-value": "theirs"})
    page = web.post(path, mine | {"slow_ms": "3s"}).content.decode()
    assert ("Text", "first", "theirs") in differences(page)
    again = _Form(page, holds="name").data
    assert web.post(path, again | {"take_stored": "rule-0-value"}).status_code == 302
    both = opened(web, path)
    assert (both["rule-0-value"], both["slow_ms"]) == (["theirs"], ["3s"])


@pytest.mark.parametrize("kind", ["monitor", "channel", "window", "page"])
def test_what_only_the_other_tab_changed_is_chosen_already(web: Client, user: User, kind: str) -> None:
    path, _, field, value = _objects(web, user)[kind]
    mine = opened(web, path)
    web.post(path, opened(web, path) | {"name": "Theirs"})
    page = web.post(path, mine | {field: value}).content.decode()
    again = _Form(page, holds="name").data
    assert again["take_stored"] == ["name"]
    assert web.post(path, again).status_code == 302
    both = opened(web, path)
    assert (both["name"], both[field]) == (["Theirs"], [value]), "both changes stay"

    mine = opened(web, path)
    web.post(path, opened(web, path) | {"name": "Fourth"})
    again = _Form(web.post(path, mine).content.decode(), holds="name").data
    assert again["take_stored"] == ["name"]
    assert web.post(path, again | {"name": "Fifth"}).status_code == 302
    assert opened(web, path)["name"] == ["Fifth"], "what is typed after the choice counts"


def test_a_rule_that_the_other_tab_added_is_chosen_already(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, type="keyword", content_rules=[{"type": "text_contains", "value": "first"}])
    path = f"/monitors/{monitor.public_id}/edit"
    mine = opened(web, path)
    web.post(path, opened(web, path) | {"rule-1-kind": "absent", "rule-1-value": "theirs"})
    again = _Form(web.post(path, mine | {"slow_ms": "3s"}).content.decode(), holds="name").data
    assert sorted(again["take_stored"]) == ["rule-1-kind", "rule-1-value"]
    assert web.post(path, again).status_code == 302
    monitor.refresh_from_db()
    assert [rule.value for rule in monitor.full_config["content_rules"]] == ["first", "theirs"]


@pytest.mark.parametrize("tags", ["", "nonsense", "\n \n", "0123456789ab name"])
def test_without_the_tags_nothing_is_chosen(web: Client, user: User, tags: str) -> None:
    path = _objects(web, user)["window"][0]
    mine = opened(web, path)
    web.post(path, opened(web, path) | {"name": "Theirs"})
    page = web.post(path, mine | {"form_opened": tags}).content.decode()
    assert "take_stored" not in _Form(page, holds="name").data
    assert differences(page) == [("Name", "First", "Theirs")]


def _buttons(web: Client, user: User, kind: str) -> tuple[str, str, str]:
    """Return the page of the form, the one with the button that deletes, and the address of that button."""
    if kind == "project":
        path = f"/projects/{ProjectFactory(owner=user, name='First').public_id}"
        return path, path, f"{path}/delete"
    path = _objects(web, user)[kind][0]
    address = path.removesuffix("/edit")
    return path, address if kind in ("monitor", "page") else path, f"{address}/delete"


def _button(page: str, address: str) -> dict[str, list[str]]:
    """Return the data of the form that deletes."""
    found = re.search(rf'<form[^>]*action="{address}".*?</form>', page, re.DOTALL)
    assert found is not None
    return _Form(found[0], holds="form_opened").data


@pytest.mark.parametrize("kind", ["monitor", "channel", "window", "page", "project"])
def test_an_outdated_page_deletes_nothing_and_asks_again(web: Client, user: User, kind: str) -> None:
    path, shown, address = _buttons(web, user, kind)
    button = _button(web.get(shown).content.decode(), address)
    renamed = f"{path}/rename" if kind == "project" else path
    assert web.post(renamed, opened(web, path) | {"name": f"Theirs {HOSTILE}"}).status_code == 302
    refused = web.post(address, button)
    page = refused.content.decode()
    assert refused.status_code == 412
    assert "The settings were changed after you opened the page. Nothing was deleted." in page
    cells = re.findall(r'<td class="main">([^<]*)</td>\s*<td data-label="Now">([^<]*)</td>', page)
    assert [tuple(map(unescape, row)) for row in cells] == [("Name", f"Theirs {HOSTILE}")]
    again = _Form(page, holds="form_opened").data
    web.post(renamed, opened(web, path) | {"name": "Third"})
    refused = web.post(address, again)
    assert refused.status_code == 412, "changed once more"
    assert web.get(path).status_code == 200
    assert web.post(address, _Form(refused.content.decode(), holds="form_opened").data).status_code == 302
    assert web.get(path).status_code == 404


def test_a_change_of_a_secret_is_named_but_not_shown(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, request_headers=[{"name": "X-Key", "value": "s3cret"}])
    path = f"/monitors/{monitor.public_id}"
    button = _button(web.get(path).content.decode(), f"{path}/delete")
    web.post(f"{path}/edit", opened(web, f"{path}/edit") | {"header-0-value": "an0ther"})
    page = web.post(f"{path}/delete", button).content.decode()
    assert "A value that is not shown was changed" in page
    assert "s3cret" not in page
    assert "an0ther" not in page


def test_a_page_without_the_tags_shows_all_settings(web: Client, user: User) -> None:
    path = _objects(web, user)["window"][0]
    page = web.post(f"{path}/delete", {"form_etag": '"old"'}).content.decode()
    assert all(label in page for label in ("Name", "Starts", "Ends", "Time zone", "Repeats", "Monitors"))


@pytest.mark.parametrize("kind", ["monitor", "channel", "window", "page", "project"])
def test_no_other_account_deletes_or_reads_it(web: Client, user: User, kind: str) -> None:
    path, _, address = _buttons(web, user, kind)
    stranger = Client()
    stranger.force_login(UserFactory())
    for sent in ({}, {"form_etag": '"old"'}):
        assert stranger.post(address, sent).status_code == 404
    assert web.get(path).status_code == 200
