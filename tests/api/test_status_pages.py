"""/v1/status-pages and their notes, logos and badges."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from django.contrib.auth.hashers import check_password
from pytest_django.fixtures import Settings

from accounts.models import User
from core.clock import utc_now
from core.errors import ValidationFailed
from projects.access import Caller
from statuspages import services
from statuspages.models import PageEvent, StatusPage, Subscriber
from statuspages.services import create_page
from tests.api.client import Api
from tests.factories import IncidentFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import run_concurrently
from tests.statuspages.making import bomb, make_page, make_subscriber, picture, slow_jpeg

NOTE = {"title": "Late", "status": "investigating", "text": "Orders are late."}


def create(api: Api, **given: Any) -> Any:
    return api.post("/v1/status-pages", {"name": "Shop", "slug": "shop-api"} | given)


def test_what_is_created_is_read_back(api: Api, user: User) -> None:
    monitor = MonitorFactory(owner=user)
    groups: list[dict[str, Any]] = [
        {"name": "One", "monitors": [], "monitor_tags": []},
        {"name": "Two", "monitors": [{"monitor_id": monitor.public_id, "name": "Web"}], "monitor_tags": ["web"]},
    ]
    made = create(api, groups=groups, accent="#5B6EE1", password="open sesame", theme="dark")
    assert made.status == 201
    page = made.json
    assert page["id"].startswith("stp_")
    assert (page["groups"], page["accent"], page["theme"]) == (groups, "#5b6ee1", "dark")
    assert (page["protected"], page["published"], page["url"]) == (True, True, "http://localhost:8000/status/shop-api")
    assert "open sesame" not in made.text
    stored = StatusPage.objects.get()
    assert check_password("open sesame", stored.password_hash)
    assert api.get(f"/v1/status-pages/{page['id']}").json == page
    assert api.get("/v1/status-pages").json == [page]
    assert api.patch(f"/v1/status-pages/{page['id']}", page).json == page
    assert api.patch(f"/v1/status-pages/{page['id']}", {"password": None}).json["protected"] is False
    assert api.delete(f"/v1/status-pages/{page['id']}").json == {"ok": True}
    assert api.get("/v1/status-pages").json == []


def test_sent_twice_with_a_key_it_is_made_once(api: Api) -> None:
    body = {"name": "Shop", "slug": "shop-twice"}
    first, second = (api.post("/v1/status-pages", body, key="k") for _ in range(2))
    assert first.json == second.json
    assert StatusPage.objects.count() == 1


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"slug": "Shop"}, "validation_error slug: must be 1 to 64 characters of a-z, 0-9 and -, without - at"),
        ({"slug": "-a"}, "validation_error slug: must be 1 to 64"),
        ({"slug": "static"}, "validation_error slug: is reserved"),
        ({"accent": "red"}, "validation_error accent: must be a colour"),
        ({"accent": "#ffffff"}, "validation_error accent: has too little contrast on the light theme"),
        ({"accent": "#101010"}, "validation_error accent: has too little contrast on the dark theme"),
        ({"theme": "blue"}, "validation_error theme: must be one of"),
        ({"password": "short"}, "validation_error password: "),
        ({"custom_domain": "status.shop.example"}, "validation_error custom_domain: is not a domain"),
        ({"groups": [{"monitors": [{"monitor_id": "mon_x", "name": "x"}]}]}, "validation_error groups[0].monitors[0]"),
        ({"groups": [{"monitors": [{"monitor_id": "mon_x"}]}]}, "validation_error groups[0].monitors[0].name"),
        ({"published": 1}, "validation_error published"),
        ({"logo": "x"}, "validation_error logo: is not a field"),
    ],
)
def test_what_does_not_hold(api: Api, given: dict[str, Any], error: str) -> None:
    answer = create(api, **given)
    assert answer.status == 422
    assert answer.error.startswith(error)


@pytest.mark.parametrize(
    "domain", ["localhost", "shop", "192.0.2.1", "a b.example", "-a.example", "x" * 64 + ".example", "host:80", ""]
)
def test_what_is_no_domain(api: Api, settings: Settings, domain: str) -> None:
    settings.STATUS_PAGE_DOMAINS = ["*"]
    assert create(api, custom_domain=domain).error.startswith("validation_error custom_domain: ")


def test_a_page_of_a_thousand_long_names_is_no_body_too_large(api: Api) -> None:
    shown = [{"monitor_id": f"mon_{n:026}", "name": "x" * 200} for n in range(1_000)]
    assert "monitor not found" in create(api, groups=[{"monitors": shown}]).error
    assert create(api, groups=[{"monitors": [*shown, shown[0]]}]).error.startswith(
        "validation_error groups[0].monitors"
    )


def test_a_slug_is_one_pages_and_a_domain_may_be_claimed_by_many(api: Api, settings: Settings) -> None:
    settings.STATUS_PAGE_DOMAINS = [".shop.example"]
    create(api, custom_domain="Status.Shop.Example.")
    other = Api.signed_in(UserFactory())
    assert create(other).error == "validation_error slug: is already used by another status page."
    claimed = create(other, slug="another", custom_domain="status.shop.example").json
    assert (claimed["custom_domain"], claimed["domain_verified"]) == ("status.shop.example", False)
    assert claimed["url"].endswith("/status/another")


def test_a_monitor_of_another_account_or_project_is_not_found(api: Api, user: User) -> None:
    stranger = UserFactory()
    project = ProjectFactory(owner=user)
    theirs, mine = MonitorFactory(owner=stranger), MonitorFactory(owner=user)

    def groups(monitor: Any, times: int = 1) -> Any:
        return [{"monitors": [{"monitor_id": monitor.public_id, "name": "x"}] * times}]

    assert "monitor not found" in create(api, groups=groups(theirs)).error
    here = {"project_id": project.public_id}
    assert "can only show monitors of its project" in create(api, groups=groups(mine), **here).error
    assert "is already on the page" in create(api, groups=groups(mine, 2)).error
    assert not StatusPage.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_the_cap_and_the_slug_hold_at_once(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    user = UserFactory()
    monkeypatch.setattr(services, "MAX_PAGES", 2)

    def make(slug: str) -> Any:
        return lambda: create_page(Caller(user), {"name": "x", "slug": slug}, now=utc_now())

    same = run_concurrently(*[make("same")] * 3)
    assert sum(isinstance(one, ValidationFailed) for one in same) == 2
    run_concurrently(*[make(f"other-{n}") for n in range(3)])
    assert StatusPage.objects.count() == 2


class TestLogos:
    @pytest.fixture
    def path(self, user: User) -> str:
        return f"/v1/status-pages/{make_page(user, []).public_id}/logo"

    def put(self, api: Api, path: str, data: bytes) -> Any:
        return api.send("put", path, {"image": b64encode(data).decode()})

    def test_pictures_are_encoded_anew(self, api: Api, path: str) -> None:
        import io

        from PIL import Image

        exif = Image.Exif()
        exif[0x010E] = "a secret of the camera"
        for data in (
            picture("PNG", size=(1_000, 500)),
            picture("JPEG", exif=exif) + b"<script>alert(1)</script>PK\x03\x04",
            picture("GIF"),
            picture("WEBP"),
        ):
            assert self.put(api, path, data).json["has_logo"] is True
            stored = bytes(StatusPage.objects.get().logo.image)
            with Image.open(io.BytesIO(stored)) as found:
                assert found.format == "WEBP"
                assert max(found.size) <= 512
                assert not found.getexif()
            assert b"script" not in stored
            assert b"secret" not in stored
        assert api.delete(path).json == {"ok": True}
        assert not hasattr(StatusPage.objects.get(), "logo")

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"", "may not be blank"),
            (b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", "is not a readable picture"),
            (picture()[:40], "is not a readable picture"),
            (b"%PDF-1.4" + picture(), "is not a readable picture"),
            (picture(size=(4_097, 1)), "is wider or higher than 4096 pixels"),
            (bomb(9_999, 9_999), "is wider or higher than 4096 pixels"),
            (bomb(20_000, 20_000), "is wider or higher than 4096 pixels"),
            (bomb(2_048, 2_049), "has more than 4 million pixels"),
            (slow_jpeg(), "takes too long"),
            (b"x" * (1024 * 1024 + 1), "is larger than 1 MiB"),
        ],
        ids=["nothing", "svg", "cut", "pdf", "wide", "bomb", "larger bomb", "many pixels", "many scans", "heavy"],
    )
    def test_what_is_none_is_refused(self, api: Api, path: str, data: bytes, reason: str) -> None:
        answer = self.put(api, path, data)
        assert answer.status in (413, 422)
        assert answer.status == 413 or reason in answer.error
        assert not hasattr(StatusPage.objects.get(), "logo")

    def test_what_is_no_base64(self, api: Api, path: str) -> None:
        assert api.send("put", path, {"image": "no!"}).error == "validation_error image: is not Base64."


class TestNotes:
    @pytest.fixture
    def path(self, user: User) -> str:
        return f"/v1/status-pages/{make_page(user, [MonitorFactory(owner=user)]).public_id}/notes"

    def test_from_the_first_word_to_the_last(self, api: Api, path: str) -> None:
        note = api.post(path, NOTE)
        assert note.status == 201
        assert note.json["resolved_at"] is None
        updates = f"{path}/{note.json['id']}/updates"
        done = api.post(updates, {"status": "resolved", "text": "Done."})
        assert done.json["resolved_at"] is not None
        assert [update["status"] for update in done.json["updates"]] == ["investigating", "resolved"]
        assert api.post(updates, {"status": "resolved", "text": "Again."}).error.startswith("note_resolved")
        assert api.get(path).json == [done.json]
        assert PageEvent.objects.count() == 2
        assert api.delete(f"{path}/{note.json['id']}").json == {"ok": True}
        assert api.get(path).json == []

    def test_sent_twice_with_a_key_it_is_notified_once(self, api: Api, path: str) -> None:
        assert api.post(path, NOTE, key="k").json == api.post(path, NOTE, key="k").json
        assert PageEvent.objects.count() == 1

    def test_an_incident_has_to_be_of_the_page(self, api: Api, user: User, path: str) -> None:
        monitors = [StatusPage.objects.get().groups.get().monitors.get().monitor, MonitorFactory(owner=user)]
        shown, hidden = (IncidentFactory(monitor=monitor, started_at=utc_now()) for monitor in monitors)
        assert api.post(path, NOTE | {"incident_id": shown.public_id}).json["incident_id"] == shown.public_id
        assert (
            "is not an incident of a monitor on this page"
            in api.post(path, NOTE | {"incident_id": hidden.public_id}).error
        )


def test_subscribers_are_counted_and_removed_but_not_shown(api: Api, user: User) -> None:
    page = make_page(user, [])
    one = make_subscriber(page, email="reader@example.com")
    path = f"/v1/status-pages/{page.public_id}/subscribers"
    assert [found["hint"] for found in api.get(path).json] == ["r…@example.com"]
    assert "reader" not in api.get(path).text
    assert api.delete(f"{path}/{one.public_id}").json == {"ok": True}
    assert api.delete(f"{path}/{one.public_id}").status == 404
    assert not Subscriber.objects.exists()


def test_a_badge_is_given_once_and_taken_for_good(api: Api, user: User) -> None:
    path = f"/v1/monitors/{MonitorFactory(owner=user).public_id}/badge"
    assert api.get(path).status == 404
    first = api.send("put", path).json
    assert api.send("put", path).json == api.get(path).json == first
    assert first["urls"]["status"] == f"http://localhost:8000/badge/{first['key']}/status.svg"
    assert api.delete(path).json == {"ok": True}
    assert api.get(path).status == api.delete(path).status == 404
    assert api.send("put", path).json["key"] != first["key"]
