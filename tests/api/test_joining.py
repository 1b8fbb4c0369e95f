"""Agents join a location with a token, once, and get a credential."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from pytest_django.fixtures import Settings

from accounts.models import User
from checks.agent_protocol import PROTOCOL
from core.clock import utc_now
from core.errors import AgentOutdated, JoinTokenInvalid
from locations import agents
from locations.agents import authenticate, require_accepted
from locations.models import Agent, JoinToken, Location
from locations.services import MAX_AGENTS, create_location, create_shared, issue_shared, join
from projects.access import Caller
from tests.api.client import Answer, Api
from tests.audit.reading import last
from tests.factories import ProjectFactory, UserFactory
from tests.helpers import flush_broker, run_concurrently
from tests.locations import add_agent

AGENT = {"name": "probe-1", "version": "1.0", "protocol": PROTOCOL}


def ask(join_token: str, **given: Any) -> Answer:
    return Api().post("/v1/agent/join", AGENT | {"token": join_token} | given)


@pytest.fixture
def office(user: User) -> tuple[Location, str]:
    project = ProjectFactory(owner=user)
    return create_location(Caller(user), {"name": "Office", "project_id": project.public_id}, now=utc_now())


def test_an_agent_joins(office: tuple[Location, str], user: User) -> None:
    location, token = office
    joined = ask(token, a_field_of_a_later_version=1)
    assert joined.status == 201
    agent = Agent.objects.get()
    names = {"location_id": location.public_id, "location_name": "Office"}
    assert joined.json == names | {"agent_id": agent.public_id, "credential": joined.json["credential"]}
    assert (agent.location, agent.name, agent.version, agent.protocol) == (location, "probe-1", "1.0", PROTOCOL)
    entry = last()
    assert (entry.action, entry.actor_type, entry.subject_id) == ("agent.joined", "anonymous", user.pk)
    assert (entry.project_id, entry.target_id) == (location.project_id, agent.public_id)

    credential = joined.json["credential"]
    assert authenticate(credential) == agent
    wrong = credential[:-1] + ("b" if credential[-1] == "a" else "a")
    for other in ("", "agk_", wrong, token, "svc_" + credential[4:], credential + "\n"):
        assert authenticate(other) is None
    assert Api(credential).get("/v1/locations").status == 401, "it opens no other route"
    User.objects.filter(pk=user.pk).update(is_active=False)
    assert authenticate(credential) is None
    User.objects.filter(pk=user.pk).update(is_active=True)
    agent.delete()
    assert authenticate(credential) is None


def test_without_a_version_of_the_protocol_it_is_the_current_one(office: tuple[Location, str]) -> None:
    assert Api().post("/v1/agent/join", {"token": office[1], "name": "probe", "version": "1"}).status == 201
    assert Agent.objects.get().protocol == PROTOCOL


def test_tokens_that_are_refused(office: tuple[Location, str], user: User) -> None:
    location, token = office
    forged = token[:-1] + ("b" if token[-1] == "a" else "a")
    session = Api.signed_in(user).token
    for wrong in ("x", "join_" + "a" * 68, forged, session):
        assert ask(str(wrong)).error == "join_token_invalid token: is unknown."
    assert ask(token).status == 201
    assert ask(token).error == "join_token_invalid token: was used before; each is for one agent."
    other = create_location(Caller(user), {"name": "Attic"}, now=utc_now())[1]
    with time_machine.travel(utc_now() + timedelta(hours=1, seconds=1)):
        refused = ask(other)
    assert (refused.status, refused.json["reason"]) == (403, "token: has expired; each is valid for one hour.")
    location.delete()
    assert ask(token).json["reason"] == "token: is unknown."
    assert not Agent.objects.exists()


@pytest.mark.parametrize(
    "given", [{"name": ""}, {"name": "x" * 101}, {"version": "1" * 41}, {"token": "x" * 101}, {"protocol": "1"}]
)
def test_other_bodies_are_refused(office: tuple[Location, str], given: dict[str, Any]) -> None:
    assert ask(office[1], **given).status == 422
    assert Api().post("/v1/agent/join", []).status == 422
    assert not JoinToken.objects.exclude(used_at=None).exists()


def test_other_versions_of_the_protocol_are_refused(
    office: tuple[Location, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for protocol in (0, PROTOCOL + 1):
        refused = ask(office[1], protocol=protocol)
        assert (refused.status, refused.json["error"]) == (409, "agent_outdated")
        assert refused.json["reason"] == f"protocol: is {protocol}; this server accepts 1."
    monkeypatch.setattr(agents, "_ACCEPTED", range(4, 6))
    require_accepted(4)
    with pytest.raises(AgentOutdated, match="accepts 4 and 5"):
        require_accepted(3)
    monkeypatch.undo()
    assert ask(office[1]).status == 201, "it did not use up the token"


def test_a_private_location_has_a_limited_number_of_agents(office: tuple[Location, str]) -> None:
    location, token = office
    for _ in range(MAX_AGENTS):
        agent = add_agent(location)
    refused = ask(token)
    assert (refused.status, refused.json["error"], refused.json["limit"]) == (403, "limit_reached", MAX_AGENTS)
    agent.delete()
    assert ask(token).status == 201
    fra, _ = create_shared("fra", name="Frankfurt", now=utc_now())
    for _ in range(MAX_AGENTS):
        add_agent(fra)
    assert ask(issue_shared("fra", now=utc_now())).status == 201


@pytest.mark.django_db(transaction=True)
def test_of_several_with_one_token_one_joins() -> None:
    caller = Caller(UserFactory())

    def race() -> None:
        location, token = create_location(caller, {"name": "Office"}, now=utc_now())
        found = run_concurrently(*[lambda: join(token=token, **AGENT, now=utc_now())] * 4)  # type: ignore[arg-type]
        assert sum(isinstance(each, JoinTokenInvalid) for each in found) == 3
        assert Agent.objects.filter(location=location).count() == 1

    for _ in range(5):
        race()


def test_guesses_are_throttled_by_address(office: tuple[Location, str], settings: Settings) -> None:
    settings.THROTTLE_SCALE, settings.THROTTLES = 1, settings.THROTTLES | {"join": (2, 60)}
    flush_broker()
    assert [ask("x").status for _ in range(3)] == [403, 403, 429]
    assert ask(office[1]).status == 429
