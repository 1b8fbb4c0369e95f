"""Private networks: the question of `manage.py up`, its answer in the data folder, and the texts of errors."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from audit.models import Entry
from core import private_networks
from core.egress import EgressGuard, parse_networks
from devserver.environment import local_environment
from monitors.services import permits_host
from tests.api.client import Api
from tests.factories import UserFactory

ROOT = Path(__file__).parents[1]
QUESTION = "May checks reach private networks?"
ASK = (
    "import sys; from pathlib import Path; from devserver.environment import _ask_about_networks; "
    "print(_ask_about_networks(Path(sys.argv[1])))"
)
ROUTER = {"url": "http://192.168.1.1/"}


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Path:
    """The file for the answer, in a web process of `up`."""
    settings.ALLOWED_PRIVATE_NETWORKS = parse_networks(private_networks.LOOPBACK)
    settings.THROTTLE_SCALE = 0
    path = tmp_path / private_networks.FILE
    monkeypatch.setenv(private_networks.VARIABLE, str(path))
    return path


@pytest.fixture
def staff(client: Client, db: None) -> Client:
    client.force_login(UserFactory(is_staff=True))
    return client


def test_an_answer_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "answer"
    assert private_networks.read(path) is None
    for allowed in (True, False):
        private_networks.write(path, allowed=allowed)
        assert private_networks.read(path) is allowed
    for damaged in ("", "yes", "[]", '{"allowed": "yes"}', '{"allowed": 1}', "null"):
        path.write_text(damaged)
        assert private_networks.read(path) is None


@pytest.mark.parametrize(
    ("address", "is_permitted"),
    [
        ("10.1.2.3", True),
        ("172.31.0.1", True),
        ("192.168.1.1", True),
        ("fd00::1", True),
        ("127.0.0.1", True),
        ("::ffff:192.168.1.1", True),
        ("169.254.169.254", False),
        ("::ffff:169.254.169.254", False),
        ("fd00:ec2::254", False),
        ("fd00:ec2::23", False),
        ("fd20:ce::254", False),
        ("fd00:c1::a9fe:a9fe", False),
        ("168.63.129.16", False),
        ("fe80::1", False),
        ("100.64.0.1", False),
    ],
)
def test_what_is_allowed(address: str, is_permitted: bool) -> None:
    guard = EgressGuard(parse_networks(private_networks.networks(allowed=True)))
    assert guard.permits(ip_address(address)) is is_permitted


@pytest.mark.parametrize(
    "network",
    [
        "169.254.0.0/16",
        "169.254.169.254/32",
        "::ffff:169.254.0.0/112",
        "fd00:ec2::254/128",
        "100.64.0.0/10",
        "fc00::/7",
    ],
)
def test_no_setting_allows_metadata(network: str) -> None:
    guard = EgressGuard(parse_networks(network))
    for address in (
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "100.100.100.200",
        "fd00:ec2::254",
        "fd20:ce::254",
    ):
        assert not guard.permits(ip_address(address))


@pytest.mark.parametrize(("allowed", "expected"), [(True, private_networks.networks(allowed=True)), (False, None)])
def test_commands_use_the_answer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    allowed: bool,
    expected: str | None,
) -> None:
    private_networks.write(tmp_path / private_networks.FILE, allowed=allowed)
    for name in ("DATABASE_URL", "REDIS_URL", private_networks.SETTING):
        monkeypatch.delenv(name)
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    with local_environment(["manage.py", "probe"]):
        assert os.environ.get(private_networks.SETTING) == expected
    monkeypatch.setenv(private_networks.SETTING, "")
    with local_environment(["manage.py", "probe"]):
        assert os.environ[private_networks.SETTING] == ""


@pytest.mark.parametrize(
    ("typed", "expected"), [("y\n", True), ("yes\n", True), ("\n", False), ("x\n", False), ("\x04", None)]
)
def test_a_terminal_is_asked_once(tmp_path: Path, typed: str, expected: bool | None) -> None:
    path = tmp_path / "answer"
    for asked in (True, False):
        ours, theirs = pty.openpty()
        ran = subprocess.Popen(
            ["setsid", "--ctty", "--wait", sys.executable, "-c", ASK, str(path)],
            cwd=ROOT,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        try:
            while part := os.read(ours, 1024):
                shown += part
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        assert ran.wait(30) == 0
        assert (QUESTION[:30] in shown.decode()) == (asked or expected is None)
        assert shown.decode().rstrip().endswith(str(expected))
    assert private_networks.read(path) is expected


def test_without_a_terminal_nothing_is_asked(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(tmp_path / "answer")], cwd=ROOT, input="y\n", capture_output=True, text=True
    )
    assert done.stdout == "None\n"
    assert not (tmp_path / "answer").exists()


RESTART = """
import os, time
from pathlib import Path
from devserver.process_manager import ProcessManager

def watch(manager):
    seen = lambda: open("seen").read().split() if os.path.exists("seen") else []
    while seen() != ["before"]:
        time.sleep(0.01)
    os.environ["VALUE"] = "after"
    manager.restart("child", "none")
    while seen() != ["before", "after"]:
        time.sleep(0.01)
    manager.fail("done")

os.environ["VALUE"] = "before"
print(ProcessManager({"child": "echo $VALUE >> seen; exec sleep 60"}, watch=watch).run())
"""


def test_a_restarted_child_has_the_new_environment(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RESTART],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "done"
    assert "unexpectedly" not in done.stdout


FOLLOW = """
import os, time
from pathlib import Path

import django
django.setup()

from core import private_networks
from devserver.management.commands.up import Command
from devserver.process_manager import ProcessManager

def lines():
    return Path("seen").read_text().splitlines() if Path("seen").exists() else []

def watch(manager):
    up, answers = Command(), iter((True, False))
    for number in (1, 2, 3):
        while len(lines()) < number:
            up._follow_networks(manager)
            time.sleep(0.01)
        if number < 3:
            private_networks.write(private_networks.answer_file(), allowed=next(answers))
    manager.fail("done")

print(ProcessManager({"worker": "echo $ALLOWED_PRIVATE_NETWORKS >> seen; exec sleep 60"}, watch=watch).run())
"""


def test_an_answer_restarts_the_processes_that_check(tmp_path: Path) -> None:
    loopback, all_private = (private_networks.networks(allowed=allowed) for allowed in (False, True))
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")},
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PYTHONPATH": str(ROOT),
        private_networks.SETTING: loopback,
        private_networks.VARIABLE: str(tmp_path / private_networks.FILE),
    }
    done = subprocess.run(
        [sys.executable, "-c", FOLLOW], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "done", done.stderr
    assert (tmp_path / "seen").read_text().splitlines() == [loopback, all_private, loopback]


class TestPages:
    def test_staff_are_asked_until_they_answer(self, staff: Client, answer: Path) -> None:
        api = Api.signed_in(UserFactory())
        assert api.post("/v1/monitors", ROUTER).status == 422
        assert QUESTION in staff.get("/monitors").content.decode()
        assert staff.post("/private-networks", {"answer": "perhaps"}).status_code == 200
        assert private_networks.read(answer) is None
        page = staff.post("/private-networks", {"answer": "allow"}, follow=True)
        assert "Checks may reach private networks." in page.content.decode()
        assert QUESTION not in page.content.decode()
        assert private_networks.read(answer) is True
        assert permits_host("192.168.1.1")
        assert Entry.objects.get(action="networks.allowed").actor_type == "user"
        assert "Checks may reach private networks" in staff.get("/private-networks").content.decode()
        staff.post("/private-networks", {"answer": "refuse"})
        assert private_networks.read(answer) is False
        assert QUESTION not in staff.get("/monitors").content.decode()
        assert Entry.objects.filter(action="networks.refused").count() == 1

    def test_others_are_not_asked_and_find_nothing(self, client: Client, answer: Path, db: None) -> None:
        client.force_login(UserFactory())
        assert QUESTION not in client.get("/monitors").content.decode()
        for found in (client.get("/private-networks"), client.post("/private-networks", {"answer": "allow"})):
            assert found.status_code == 404
        assert private_networks.read(answer) is None

    def test_an_operator_who_decided_is_not_asked(self, staff: Client) -> None:
        assert QUESTION not in staff.get("/monitors").content.decode()
        assert staff.get("/private-networks").status_code == 404

    def test_an_answer_that_cannot_be_stored(
        self, staff: Client, answer: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(private_networks.VARIABLE, str(answer.parent / "none" / "answer"))
        page = staff.post("/private-networks", {"answer": "allow"}, follow=True)
        assert "The answer cannot be stored" in page.content.decode()
        assert not Entry.objects.filter(action="networks.allowed").exists()


@pytest.mark.parametrize(
    ("is_staff", "is_up", "expected"),
    [
        (False, False, "The operator of this Pulsekeeper can allow private networks."),
        (False, True, "The operator of this Pulsekeeper can allow private networks."),
        (True, False, "ALLOWED_PRIVATE_NETWORKS (docs/operate/settings.md) allows private networks."),
        (True, True, "http://localhost:8000/private-networks allows private networks."),
    ],
)
def test_a_refusal_says_who_can_allow_it(
    answer: Path,
    db: None,
    monkeypatch: pytest.MonkeyPatch,
    is_staff: bool,
    is_up: bool,
    expected: str,
) -> None:
    if not is_up:
        monkeypatch.delenv(private_networks.VARIABLE)
    user = UserFactory(is_staff=is_staff)
    for body in (ROUTER, {"type": "dns", "url": "dns://192.168.1.1/example.com?type=A"}):
        refused = Api.signed_in(user).post("/v1/monitors", body)
        assert refused.status == 422
        assert refused.json["reason"].endswith(expected)
    channel = {"kind": "webhook", "name": "x", "monitors": "all", "url": "https://192.168.1.1/"}
    refused = Api.signed_in(user).post("/v1/alert-channels", channel)
    assert refused.json["reason"].endswith(expected)
