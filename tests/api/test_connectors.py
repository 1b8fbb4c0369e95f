"""Connectors of the REST contract (section 4): each rule and error, under both pairs of names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
import time_machine
from django.core.management import call_command
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.models import User
from config import openapi
from connectors.models import Connector, OAuthState
from connectors.tasks import sweep
from core.clock import to_ms, utc_now
from monitors.models import Monitor
from tests.api.client import Api
from tests.connectors.fakes import FakeVercel, Mode, project, projects
from tests.connectors.linking import OWN_WORDS, PLAIN_WORDS, Place, come_back, place
from tests.factories import MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tests.helpers import run_concurrently

BACKEND = "django.contrib.auth.backends.ModelBackend"
WORDS = [*PLAIN_WORDS.items(), *OWN_WORDS.items()]


@pytest.fixture
def user(transactional_db: None) -> User:
    """Commit rows: the code never waits for the network inside a transaction, so not in a test's either."""
    return UserFactory()


@pytest.fixture(params=WORDS, ids=[word for word, _ in WORDS])
def there(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Place]:
    word, backend = request.param
    with place(settings, backend, word=word) as found:
        yield found


@pytest.fixture
def linked(there: Place, api: Api) -> Place:
    there.link(api)
    return there


@pytest.fixture
def vercel(settings: Settings) -> Iterator[Place]:
    with place(settings, "vercel") as found:
        yield found


def test_the_whole_way(there: Place, api: Api, user: User) -> None:
    there.fake.projects = [project(1, domain="www.shop.example"), project(2)]
    before = to_ms(utc_now())
    there.link(api)
    assert OAuthState.objects.count() == 0
    (shown,) = api.get("/v1/connectors").json
    assert before <= shown.pop("created_at") <= to_ms(utc_now())
    assert shown == {"provider": there.word, "meta": there.fake.account, "reconnect_required": False}

    listed = api.get(f"{there.path}/projects").json["projects"]
    assert [(p["external_ref"], p["name"], p["already_imported"]) for p in listed] == [
        ("prj_1", "project-1", False),
        ("prj_2", "project-2", False),
    ]
    assert listed[0]["url"] == "https://www.shop.example"
    assert all(p["url"].startswith("https://") for p in listed)

    shop = ProjectFactory(owner=user)
    body = {"external_refs": ["prj_1", "prj_2"], "project_id": shop.public_id}
    result = api.post(f"{there.path}/import", body)
    assert (result.status, result.json["skipped"], result.json["failed"]) == (200, [], [])
    made = result.json["created"]
    assert [(m["name"], m["url"]) for m in made] == [(p["name"], p["url"]) for p in listed]
    assert {(m["type"], m["project_id"], m["status"]) for m in made} == {("http", shop.public_id, None)}
    assert made == api.get("/v1/monitors").json
    listed = api.get(f"{there.path}/projects").json["projects"]
    assert [p["already_imported"] for p in listed] == [True, True]

    assert api.delete(there.path).json == {"ok": True}
    assert api.get("/v1/connectors").json == []
    assert Monitor.objects.count() == 2


def test_linking_again_replaces_the_grant(linked: Place, api: Api, user: User) -> None:
    """The connector stays the same, and its imports are still known."""
    api.post(f"{linked.path}/import", {"external_refs": ["prj_1"]})
    before = Connector.objects.get()
    linked.fake.revoke()
    assert api.get(f"{linked.path}/projects").error.startswith("reconnect_required ")
    linked.fake.account = "Grace Hopper"
    linked.link(api)
    after = Connector.objects.get()
    assert (after.pk, after.created_at, after.meta) == (before.pk, before.created_at, "Grace Hopper")
    assert after.tokens["access_token"] != before.tokens["access_token"]
    assert after.revoked_at is None
    assert api.get("/v1/connectors").json[0]["reconnect_required"] is False
    listed = api.get(f"{linked.path}/projects").json["projects"]
    assert [p["already_imported"] for p in listed] == [True, False, False]


def test_everybody_links_for_himself(linked: Place, api: Api) -> None:
    other = Api.signed_in(UserFactory())
    assert other.get("/v1/connectors").json == []
    assert other.delete(linked.path).status == 404
    linked.link(other)
    assert Connector.objects.count() == 2
    assert other.delete(linked.path).status == 200
    assert len(api.get("/v1/connectors").json) == 1


# Refusals, after which nothing is linked.


@pytest.mark.parametrize("call", ["oauth/start", "projects", "import", ""])
@pytest.mark.parametrize("word", ["github", "VERCEL", "provider_a", "a" * 65])
def test_another_word_is_404(api: Api, call: str, word: str, settings: Settings) -> None:
    settings.CONNECTORS = PLAIN_WORDS
    method = {"projects": "get", "": "delete"}.get(call, "post")
    answer = api.send(method, f"/v1/connectors/{word}/{call}".rstrip("/"), {} if method == "post" else None)
    assert (answer.status, answer.json["error"]) == (404, "not_found")
    assert Client().get(f"/connectors/{word}/callback").status_code == 404


def test_own_words_are_the_only_words(api: Api, settings: Settings) -> None:
    settings.CONNECTORS = OWN_WORDS
    assert api.post("/v1/connectors/vercel/oauth/start").status == 404
    document = json.loads(openapi.document.__wrapped__().body)  # as in a process that starts with these settings
    found = {
        tuple(parameter["schema"]["enum"])
        for path, methods in document["paths"].items()
        if "{provider}" in path
        for operation in methods.values()
        for parameter in operation["parameters"]
        if parameter["name"] == "provider"
    }
    assert found == {("provider_a", "provider_b")}
    assert sum("{provider}" in path for path in document["paths"]) == 4


def test_start_without_keys_is_503(api: Api, vercel: Place, settings: Settings) -> None:
    for missing in ("VERCEL_CLIENT_ID", "VERCEL_CLIENT_SECRET", "VERCEL_SLUG"):
        vercel.fake.configure(settings)
        setattr(settings, missing, "")
        answer = api.post("/v1/connectors/vercel/oauth/start")
        assert (answer.status, answer.json["error"]) == (503, "provider_not_configured")
    assert not OAuthState.objects.exists()


@pytest.mark.parametrize("word", ["vercel", "github"])
def test_a_project_token_is_refused_before_anything_else(user: User, word: str) -> None:
    token = Api.with_token(user, ProjectFactory(owner=user))
    path = f"/v1/connectors/{word}"
    answers = [
        token.get("/v1/connectors"),
        token.post(f"{path}/oauth/start"),
        token.get(f"{path}/projects"),
        token.post(f"{path}/import", {"external_refs": 7}),
        token.delete(path),
    ]
    assert {(a.status, a.json["error"]) for a in answers} == {(403, "session_required")}


def test_not_connected_is_404(there: Place, api: Api) -> None:
    answers = [
        api.get(f"{there.path}/projects"),
        api.delete(there.path),
        api.post(f"{there.path}/import", {"external_refs": ["prj_1"]}),
        api.post(f"{there.path}/import", {"external_refs": 7}),
    ]
    assert {(a.status, a.json["error"]) for a in answers} == {(404, "not_found")}
    assert there.fake.calls == []


def refused(page: Any, *, status: int = 400) -> str:
    assert page.status_code == status
    assert page.headers["Content-Type"].startswith("text/html")
    text: str = page.content.decode()
    assert "Not linked" in text
    assert not Connector.objects.exists()
    return text


def test_a_state_is_good_once(there: Place, api: Api) -> None:
    back = there.fake.consent(there.begin(api))
    assert come_back(back).status_code == 200
    Connector.objects.all().delete()
    refused(come_back(back))


def test_a_state_is_good_for_ten_minutes(there: Place, api: Api) -> None:
    with time_machine.travel(utc_now(), tick=True) as clock:
        back = there.fake.consent(there.begin(api))
        clock.shift(timedelta(minutes=10, seconds=1))
        refused(come_back(back))
        assert there.fake.calls == []
        sweep()
    assert not OAuthState.objects.exists()


def test_a_state_that_lives_is_not_swept(there: Place, api: Api) -> None:
    back = there.fake.consent(there.begin(api))
    sweep()
    assert come_back(back).status_code == 200


@pytest.mark.parametrize("wrong", ["missing", "empty", "foreign", "of another provider"])
def test_a_state_that_is_none_of_ours(there: Place, api: Api, wrong: str, settings: Settings) -> None:
    parts = urlsplit(there.fake.consent(there.begin(api)))
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    path = parts.path
    if wrong == "missing":
        del query["state"]
    elif wrong == "of another provider":
        (other,) = set(settings.CONNECTORS) - {there.word}
        path = path.replace(f"/{there.word}/", f"/{other}/")
    else:
        query["state"] = "" if wrong == "empty" else "x" * 32
    refused(Client().get(path, query))
    assert there.fake.calls == []


def test_who_says_no_links_nothing(there: Place, api: Api) -> None:
    there.fake.denies = True
    refused(come_back(there.fake.consent(there.begin(api))))


def test_a_code_that_the_provider_refuses(there: Place, api: Api) -> None:
    back = there.fake.consent(there.begin(api))
    there.fake.client_secret = "changed since"
    page = come_back(back)
    assert page.status_code in (400, 502)
    assert "Not linked" in page.content.decode()
    assert not Connector.objects.exists()


@pytest.mark.parametrize("mode", ["down", "429", "500", "wrong_json", "wrong_types"])
def test_a_provider_that_fails_links_nothing(there: Place, api: Api, mode: Mode) -> None:
    back = there.fake.consent(there.begin(api))
    there.fake.mode = mode
    assert "pulsekeeper-secret" not in refused(come_back(back), status=502)


def test_the_page_leads_back_and_sends_no_referrer(there: Place, api: Api, settings: Settings) -> None:
    page = come_back(there.fake.consent(there.begin(api)))
    text = page.content.decode()
    assert f'href="{settings.BASE_URL}/connectors"' in text
    assert there.fake.account in text
    policy = page.headers["Content-Security-Policy"]
    for directive in ("default-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"):
        assert directive in policy
    assert "unsafe-inline" not in policy
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert page.headers["Cache-Control"] == "no-store"


# The browser must belong to the user who started (docs/adr/0020).


@pytest.fixture
def browser() -> Client:
    return Client(raise_request_exception=False)


def undo(page: Any, browser: Client | None = None, *, word: str | None = None) -> Any:
    """Press the button of the page."""
    found = re.search(
        r'action="([^"]+)"[^>]*>\s*<input type="hidden" name="secret" value="([^"]+)"', page.content.decode()
    )
    assert found is not None, page.content.decode()
    path = urlsplit(urljoin(page.request["PATH_INFO"], found[1])).path
    if word is not None:
        path = f"/connectors/{word}/undo"
    return (browser or Client(enforce_csrf_checks=True)).post(path, {"secret": found[2]})


def test_an_unknown_browser_sees_whose_account_it_was_and_may_undo(there: Place, api: Api, user: User) -> None:
    page = come_back(there.fake.consent(there.begin(api)))
    assert user.email in page.content.decode()
    assert len(api.get("/v1/connectors").json) == 1
    undone = undo(page)
    assert undone.status_code == 200
    assert user.email in undone.content.decode()
    assert undone.headers["Cache-Control"] == "no-store"
    assert api.get("/v1/connectors").json == []
    again = undo(page)
    assert again.status_code == 400
    assert "There is nothing to undo" in again.content.decode()


def test_undoing_is_for_ten_minutes(there: Place, api: Api) -> None:
    with time_machine.travel(utc_now(), tick=True) as clock:
        page = come_back(there.fake.consent(there.begin(api)))
        clock.shift(timedelta(minutes=10, seconds=1))
        assert undo(page).status_code == 400
    assert Connector.objects.count() == 1


def test_undoing_is_not_for_a_later_link(there: Place, api: Api) -> None:
    first = come_back(there.fake.consent(there.begin(api)))
    second = come_back(there.fake.consent(there.begin(api)))
    assert undo(first).status_code == 400
    assert Connector.objects.count() == 1
    assert undo(second).status_code == 200
    assert not Connector.objects.exists()


def test_undoing_twice_at_once_undoes_once(vercel: Place, api: Api) -> None:
    page = come_back(vercel.fake.consent(vercel.begin(api)))
    answers = run_concurrently(*[lambda: undo(page).status_code] * 3)
    assert sorted(answers, key=str) == [200, 400, 400]


@pytest.mark.parametrize("secret", [None, "", "forged", "\0"])
def test_undoing_needs_the_secret(vercel: Place, api: Api, secret: str | None) -> None:
    vercel.link(api)
    form = {} if secret is None else {"secret": secret}
    assert Client().post("/connectors/vercel/undo", form).status_code == 400
    assert Client().get("/connectors/vercel/undo").status_code == 405
    assert Client().post("/connectors/github/undo", form).status_code == 400
    assert Connector.objects.count() == 1


def test_the_secret_of_another_providers_link(there: Place, api: Api, settings: Settings) -> None:
    page = come_back(there.fake.consent(there.begin(api)))
    (other,) = set(settings.CONNECTORS) - {there.word}
    assert undo(page, word=other).status_code == 400
    assert Connector.objects.count() == 1


def test_the_browser_of_who_began_has_nothing_to_undo(there: Place, api: Api, user: User, browser: Client) -> None:
    browser.force_login(user, BACKEND)
    page = come_back(there.fake.consent(there.begin(api)), browser)
    assert page.status_code == 200
    text = page.content.decode()
    assert user.email in text
    assert "undo" not in text
    assert len(api.get("/v1/connectors").json) == 1
    assert Connector.objects.get().undo_digest is None


def test_the_browser_of_somebody_else_links_nothing(there: Place, api: Api, user: User, browser: Client) -> None:
    victim = UserFactory()
    browser.force_login(victim, BACKEND)
    back = there.fake.consent(there.begin(api))
    text = refused(come_back(back, browser))
    assert "with another account" in text
    assert user.email not in text
    assert there.fake.calls == []
    refused(come_back(back))


def test_a_look_ahead_spends_no_state(there: Place, api: Api) -> None:
    back = urlsplit(there.fake.consent(there.begin(api)))
    assert Client().head(f"{back.path}?{back.query}").status_code == 405
    assert OAuthState.objects.count() == 1


# Listing and importing.


def test_a_permission_that_is_missing_is_502_and_says_which(vercel: Place, api: Api) -> None:
    """The grant is valid: linking again would not help."""
    vercel.link(api)
    assert isinstance(vercel.fake, FakeVercel)
    vercel.fake.forbidden = {"/v9/projects"}
    answer = api.get(f"{vercel.path}/projects")
    assert (answer.status, answer.json["error"]) == (502, "provider_error")
    assert "the permission Project (read)" in answer.json["reason"]
    assert api.get("/v1/connectors").json[0]["reconnect_required"] is False


def test_a_project_that_makes_no_sense_costs_itself_alone(linked: Place, api: Api) -> None:
    odd = "x" * 201
    linked.fake.odd = [{"id": odd, "name": "a", "url": "https://a.example"}, None]
    listed = api.get(f"{linked.path}/projects").json["projects"]
    assert [p["external_ref"] for p in listed] == ["prj_1", "prj_2", "prj_3"]
    result = api.post(f"{linked.path}/import", {"external_refs": [odd, "prj_1"]}).json
    assert [monitor["name"] for monitor in result["created"]] == ["project-1"]
    assert result["failed"] == [{"external_ref": odd, "error": "not_found"}]


@pytest.mark.parametrize("mode", ["down", "429", "500", "wrong_json", "wrong_types"])
def test_a_provider_that_fails_is_502(linked: Place, api: Api, mode: Mode) -> None:
    linked.fake.mode = mode
    for answer in (api.get(f"{linked.path}/projects"), api.post(f"{linked.path}/import", {"external_refs": ["prj_1"]})):
        assert (answer.status, answer.json["error"]) == (502, "provider_error")
        assert not any(secret in answer.text for secret in linked.fake.issued)
    assert not Monitor.objects.exists()
    linked.fake.mode = ""
    assert api.get(f"{linked.path}/projects").status == 200


def test_a_revoked_grant_is_noticed_and_stored(linked: Place, api: Api) -> None:
    linked.fake.revoke()
    answer = api.get(f"{linked.path}/projects")
    assert (answer.status, answer.json["error"]) == (409, "reconnect_required")
    assert api.get("/v1/connectors").json[0]["reconnect_required"] is True
    calls = len(linked.fake.calls)
    answer = api.post(f"{linked.path}/import", {"external_refs": ["prj_1"]})
    assert (answer.status, answer.json["error"]) == (409, "reconnect_required")
    assert len(linked.fake.calls) == calls, "what is known is not asked again"
    assert api.delete(linked.path).status == 200


def test_each_item_on_its_own(linked: Place, api: Api) -> None:
    linked.fake.projects = [project(1), project(2, address=None), project(3), project(4)]
    assert api.post(f"{linked.path}/import", {"external_refs": ["prj_3"]}).status == 200
    refs = ["prj_4", "prj_2", "prj_gone", "prj_3", "prj_1", "prj_4"]
    answer = api.post(f"{linked.path}/import", {"external_refs": refs})
    assert answer.status == 200
    assert [monitor["name"] for monitor in answer.json["created"]] == ["project-4", "project-1"]
    assert answer.json["skipped"] == ["prj_3"]
    assert answer.json["failed"] == [
        {"external_ref": "prj_2", "error": "url: the project has no address."},
        {"external_ref": "prj_gone", "error": "not_found"},
    ]
    listed = {p["external_ref"]: p for p in api.get(f"{linked.path}/projects").json["projects"]}
    assert listed["prj_2"]["url"] == ""
    assert [listed[ref]["already_imported"] for ref in ("prj_1", "prj_2", "prj_3")] == [True, False, True]


def test_the_cap_of_the_plan(linked: Place, api: Api, user: User) -> None:
    user.plan = PlanFactory(monitor_limit=2)
    user.save(update_fields=["plan"])
    MonitorFactory(owner=user)
    answer = api.post(f"{linked.path}/import", {"external_refs": ["prj_1", "prj_2", "prj_3"]})
    assert [monitor["name"] for monitor in answer.json["created"]] == ["project-1"]
    failed = [{"external_ref": ref, "error": "monitor_limit"} for ref in ("prj_2", "prj_3")]
    assert answer.json["failed"] == failed
    again = api.post(f"{linked.path}/import", {"external_refs": ["prj_1", "prj_2"]})
    assert (again.json["created"], again.json["skipped"], again.json["failed"]) == ([], ["prj_1"], failed[:1])


def test_a_deleted_monitor_can_be_imported_again(linked: Place, api: Api) -> None:
    first = api.post(f"{linked.path}/import", {"external_refs": ["prj_1"]}).json["created"][0]
    assert api.delete(f"/v1/monitors/{first['id']}").status == 200
    second = api.post(f"{linked.path}/import", {"external_refs": ["prj_1"]}).json["created"][0]
    assert second["id"] != first["id"]


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({}, "external_refs"),
        ({"external_refs": []}, "external_refs"),
        ({"external_refs": "prj_1"}, "external_refs"),
        ({"external_refs": ["prj_1", 7]}, "external_refs[1]"),
        ({"external_refs": [""]}, "external_refs[0]"),
        ({"external_refs": None}, "external_refs"),
        ({"external_refs": ["prj_1"] * 1001}, "external_refs"),
        ({"external_refs": ["prj_1"], "name": "x"}, "name"),
        ({"external_refs": ["prj_1"], "project_id": "prj_unknown"}, "project_id"),
        ({"external_refs": ["prj_1"], "project_id": 7}, "project_id"),
        ([], "The body"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_bodies_that_are_refused(vercel: Place, api: Api, body: Any, names: str) -> None:
    vercel.link(api)
    calls = len(vercel.fake.calls)
    answer = api.post("/v1/connectors/vercel/import", body)
    assert (answer.status, answer.json["error"]) == (422, "validation_error")
    assert answer.json["reason"].startswith(names)
    assert len(vercel.fake.calls) == calls


def test_a_project_of_another_account_is_422(vercel: Place, api: Api) -> None:
    vercel.link(api)
    foreign = ProjectFactory()
    body = {"external_refs": ["prj_1"], "project_id": foreign.public_id}
    answer = api.post("/v1/connectors/vercel/import", body)
    assert (answer.status, answer.json["error"]) == (422, "validation_error")
    assert not Monitor.objects.exists()


def test_odd_names(vercel: Place, api: Api) -> None:
    vercel.link(api)
    names = ["", "x" * 300, "nul\0 and half \ud800 a pair", "<b>&"]
    vercel.fake.projects = [
        type(p)(p.ref, name, p.address, p.domain) for p, name in zip(projects(4), names, strict=True)
    ]
    assert api.get("/v1/connectors/vercel/projects").status == 200
    answer = api.post("/v1/connectors/vercel/import", {"external_refs": vercel.refs()})
    made = [monitor["name"] for monitor in answer.json["created"]]
    assert made == ["prj_1", "x" * 200, "nul and half ? a pair", "<b>&"]


def test_an_account_with_an_odd_name(vercel: Place, api: Api) -> None:
    vercel.fake.account = "<script>alert(1)</script>\0\ud800" + "x" * 300
    page = come_back(vercel.fake.consent(vercel.begin(api)))
    assert page.status_code == 200
    assert "<script>alert" not in page.content.decode()
    assert len(api.get("/v1/connectors").json[0]["meta"]) == 200


def test_of_a_team(settings: Settings, api: Api) -> None:
    with place(settings, "vercel", team=("team_1", "Shop Ltd")) as there:
        there.link(api)
        assert api.get("/v1/connectors").json[0]["meta"] == "Shop Ltd"
        assert len(api.get("/v1/connectors/vercel/projects").json["projects"]) == 3


# Secrets.


def test_no_table_holds_a_token_in_clear_text(
    linked: Place, api: Api, tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a dump of all tables, taken during a second connection attempt, nor the log contains them."""
    page = come_back(linked.fake.consent(linked.begin(api)))
    begun = linked.begin(api)
    api.get(f"{linked.path}/projects")
    api.post(f"{linked.path}/import", {"external_refs": ["prj_1"]})
    dump = tmp_path / "dump.json"
    call_command("dumpdata", "--all", output=str(dump))
    text = dump.read_text()
    assert Connector.objects.values_list("tokens", flat=True)[0].decode() in text, "the dump is whole"
    (state,) = OAuthState.objects.all()
    verifier = str(state.session)
    secrets = [*linked.fake.issued, linked.fake.client_secret]
    secrets += parse_qs(urlsplit(begun).query)["state"]
    secrets += re.findall(r'name="secret" value="([^"]+)"', page.content.decode())
    assert len(secrets) >= 7
    for secret in secrets:
        assert secret not in text
        assert secret not in caplog.text
    assert verifier not in text
