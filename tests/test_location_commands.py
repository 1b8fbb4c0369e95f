"""`manage.py create_location` and `revoke_agent`."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from accounts.models import User
from core.clock import utc_now
from locations.models import Agent, JoinToken, Location
from locations.services import create_location, join
from projects.access import Caller
from tests.audit.reading import actions
from tests.factories import UserFactory
from tests.locations import add_agent

pytestmark = pytest.mark.django_db


def run(command: str, *arguments: str, **options: Any) -> str:
    out = io.StringIO()
    call_command(command, *arguments, stdout=out, **options)
    return out.getvalue()


def test_a_location_and_another_token_for_it() -> None:
    text = run("create_location", "fra", "--name", "Frankfurt")
    found = re.fullmatch(
        r"created location fra \(Frankfurt\)\n"
        r"join token (join_\w{68})\n"
        r"valid for one agent, until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\n"
        r"pulsekeeper agent --server http://localhost:8000 --join (join_\w{68})\n",
        text,
    )
    assert found is not None, text
    assert found[1] == found[2]
    location = Location.objects.get(public_id="fra")
    assert (location.name, location.is_private, location.preselected) == ("Frankfurt", False, False)
    assert join(token=found[1], name="probe", version="1", protocol=1, now=utc_now())[0].location == location
    again = run("create_location", "fra", "--join-token")
    assert again.startswith("join token join_")
    assert JoinToken.objects.filter(location=location).count() == 2
    assert actions() == ["location.created", "join_token.issued", "agent.joined", "join_token.issued"]


@pytest.mark.parametrize("public_id", ["", "Fra", "fra_1", "f" * 41, "default", "loc-1", "location", "fra\n"])
def test_ids_that_are_refused(public_id: str) -> None:
    with pytest.raises(CommandError, match="id: "):
        run("create_location", public_id, "--name", "Frankfurt")
    assert Location.objects.count() == 1


def test_what_else_is_refused() -> None:
    with pytest.raises(CommandError, match="required"):
        run("create_location", "fra")
    with pytest.raises(CommandError, match="name: "):
        run("create_location", "fra", "--name", "x" * 101)
    office, _ = create_location(Caller(UserFactory()), {"name": "Office"}, now=utc_now())
    for public_id in ("fra", office.public_id):
        with pytest.raises(CommandError, match="Not found"):
            run("create_location", public_id, "--join-token")
    with pytest.raises(CommandError, match="workers"):
        run("create_location", "default", "--join-token")


def test_revoking_an_agent() -> None:
    owner: User = UserFactory()
    agent = add_agent(create_location(Caller(owner), {"name": "Office"}, now=utc_now())[0])
    assert run("revoke_agent", agent.public_id) == f"revoked probe-1 ({agent.public_id})\n"
    assert not Agent.objects.exists()
    assert actions(actor_id=owner.pk)[-1] == "agent.revoked"
    with pytest.raises(CommandError, match="does not exist"):
        run("revoke_agent", agent.public_id)
