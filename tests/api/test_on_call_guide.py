"""The commands of docs/use/on-call.md, as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pytest_django.live_server_helper import LiveServer

from monitors.models import Monitor
from oncall.models import Contact, EscalationPolicy, OnCallSchedule
from projects.models import Project
from tests.api.test_teams_guide import ROOT, Shell
from tests.factories import UserFactory
from tests.helpers import PASSWORD

GUIDE = ROOT / "docs" / "use" / "on-call.md"


@pytest.mark.django_db(transaction=True)
def test_the_commands_work(live_server: LiveServer, tmp_path: Path, clean_environment: dict[str, str]) -> None:
    user = UserFactory()
    variables = {"PULSEKEEPER_URL": live_server.url, "EMAIL": user.email, "PASSWORD": PASSWORD}
    commands = re.findall(r"^```sh\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    shell = Shell(tmp_path, clean_environment | variables)
    try:
        printed = [shell.run(command) for command in commands]
    finally:
        shell.close()
    policy = EscalationPolicy.objects.get()
    assert (Project.objects.get().escalation_policy, Monitor.objects.get().escalation_policy) == (policy, policy)
    assert OnCallSchedule.objects.get().public_id in policy.steps[0]["targets"][0]["id"]
    assert len(Contact.objects.get(user=user).rules) == 1
    assert sum(user.public_id in text for text in printed) >= 2
