"""The command `pulsekeeper discover` between platforms on loopback and a running server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pytest_django.live_server_helper import LiveServer

from accounts.models import User
from core.clock import utc_now
from monitors.models import Monitor
from projects.access import Caller
from projects.models import Project
from pulsekeeper.__main__ import main
from pulsekeeper.discover import applying
from tests.discovery.platforms import Docker, Kubernetes
from tests.factories import MonitorFactory, PlanFactory, ProjectFactory, UserFactory
from tests.helpers import PASSWORD
from tokens.services import create_token, sign_in

SHOP = {"pulsekeeper.url": "https://shop.example.com/", "pulsekeeper.interval": "10m"}


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Discover = Callable[..., Ran]


@pytest.fixture
def user(transactional_db: None) -> User:
    return UserFactory()


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Docker]:
    with Docker() as daemon:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{daemon.port}")
        yield daemon


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Kubernetes]:
    with Kubernetes() as cluster:
        config = {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "c"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{cluster.port}"}}],
        }
        (tmp_path / "config").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        yield cluster


@pytest.fixture
def discover(
    user: User, live_server: LiveServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Discover:
    monkeypatch.setenv("PULSEKEEPER_URL", live_server.url)
    monkeypatch.setenv("PULSEKEEPER_TOKEN", sign_in(email=user.email, password=PASSWORD, now=utc_now())[1])

    def discover(platform: str, *options: str, source: str = "host-1") -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(["discover", platform, "--source", source, "--confirm-after", "0", *options])
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capsys.readouterr())

    return discover


def names() -> set[str]:
    return set(Monitor.objects.values_list("name", flat=True))


def test_a_container_becomes_a_monitor(discover: Discover, docker: Docker) -> None:
    docker.run("web", SHOP | {"pulsekeeper.tags": "web"})
    dry = discover("docker", "--project", "Shop", "--dry-run", "--detailed-exitcode")
    assert dry.out.splitlines() == [
        "+ project 'Shop'",
        "+ monitor 'web' in Shop",
        "2 to create, 0 to change, 0 to remove.",
    ]
    assert (dry.code, dry.err, Monitor.objects.count(), Project.objects.count()) == (3, "", 0, 0)
    done = discover("docker", "--project", "Shop")
    assert (done.code, done.out.splitlines()[-1]) == (0, "2 created, 0 changed, 0 removed."), done.err
    monitor = Monitor.objects.get()
    assert (monitor.name, monitor.url, monitor.interval_sec) == ("web", SHOP["pulsekeeper.url"], 600)
    assert (monitor.tags, monitor.project and monitor.project.name) == (["web", "discovered:host-1"], "Shop")
    assert discover("docker", "--project", "Shop", "--detailed-exitcode") == (0, "Nothing to change.\n", "")
    docker.containers.clear()
    docker.run("web", SHOP | {"pulsekeeper.interval": "20m"}, state="exited")
    changed = discover("docker", "--project", "Shop")
    assert "interval_sec: 600 → 1200" in changed.out
    assert "tags[web]" in changed.out or "tags: " in changed.out
    assert Monitor.objects.get().pk == monitor.pk


def test_only_prune_removes_and_only_what_the_source_created(discover: Discover, docker: Docker, user: User) -> None:
    MonitorFactory(owner=user, name="by hand")
    docker.run("web", SHOP)
    docker.run("api", SHOP)
    discover("docker")
    discover("docker", "--project", "Other", source="host-2")
    docker.containers.pop()
    kept = discover("docker")
    assert kept.out == "note: 1 monitor not in the list; --prune would remove them.\nNothing to change.\n"
    dry = discover("docker", "--prune", "--dry-run")
    assert dry.out == "- monitor 'api'\n0 to create, 0 to change, 1 to remove.\n"
    assert Monitor.objects.count() == 5
    assert discover("docker", "--prune").out == "- monitor 'api'\n0 created, 0 changed, 1 removed.\n"
    assert set(Monitor.objects.filter(project=None).values_list("name", flat=True)) == {"by hand", "web"}
    assert Monitor.objects.filter(project__name="Other").count() == 2


def test_two_sources_in_one_project(discover: Discover, docker: Docker) -> None:
    docker.run("web", SHOP)
    discover("docker")
    clash = discover("docker", "--prune", source="host-2")
    assert (clash.code, "discovery host-2 did not create" in clash.err) == (1, True)
    docker.containers.clear()
    docker.run("other", SHOP)
    discover("docker", "--prune", source="host-2")
    assert names() == {"web", "other"}


def test_an_empty_list_removes_nothing_unless_asked(discover: Discover, docker: Docker) -> None:
    docker.run("web", SHOP)
    discover("docker")
    docker.containers.clear()
    for options in ([], ["--dry-run"]):
        refused = discover("docker", "--prune", *options)
        assert (refused.code, "--allow-empty removes all 1 monitor" in refused.err) == (2, True)
    assert names() == {"web"}
    assert discover("docker", "--prune", "--allow-empty").code == 0
    assert names() == set()


def test_a_platform_that_fails_removes_nothing(discover: Discover, docker: Docker) -> None:
    docker.run("web", SHOP)
    docker.run("api", SHOP)
    discover("docker")
    docker.broken = b"HTTP/1.1 200 OK\r\nApi-Version: 1.47\r\nContent-Length: 50\r\n\r\n[]"
    assert discover("docker", "--prune", "--allow-empty").code == 4
    docker.broken = b""
    assert discover("docker", "--prune", "--allow-empty").code == 4
    assert names() == {"web", "api"}


def test_a_container_that_is_back_when_listed_again(discover: Discover, docker: Docker, user: User) -> None:
    docker.run("web", SHOP)
    docker.run("api", SHOP)
    discover("docker")
    replaced = docker.containers.pop()
    taken = Monitor.objects.get(name="web")
    answer = docker.answer

    def change_after(path: str, *arguments: Any) -> Any:
        """Between the lists, one container is replaced by another, and a person takes over a monitor."""
        found = answer(path, *arguments)
        if path.endswith("/json") and replaced not in docker.containers:
            docker.containers[:] = [replaced]
            Monitor.objects.filter(pk=taken.pk).update(tags=None, tag_keys=None)
        return found

    docker.containers[:] = [docker.containers[0] | {"Labels": {}}]
    docker.answer = change_after  # type: ignore[method-assign, assignment]
    ran = discover("docker", "--prune", "--allow-empty", "--confirm-after", "0.001")
    assert (ran.code, ran.out) == (0, "Nothing to change.\n")
    assert names() == {"web", "api"}


def test_what_a_kind_of_the_cluster_hides_is_not_removed(discover: Discover, cluster: Kubernetes) -> None:
    cluster.add("services", "shop", "web", pulsekeeper__url="https://shop.example.com/")
    cluster.add("ingresses", "shop", "site", spec={"rules": [{"host": "www.example.com"}]})
    assert discover("kubernetes", "--ingress").code == 0
    assert names() == {"shop/web", "shop/www.example.com"}
    cluster.objects.refused = {"services"}
    ran = discover("kubernetes", "--ingress", "--prune")
    assert (ran.code, "services: may not be listed (403)" in ran.err) == (1, True)
    assert "nothing is removed while something could not be listed" in ran.out
    cluster.objects.refused = set()
    cluster.objects.expired = 9
    cluster.objects.page = 1
    cluster.add("services", "shop", "x")
    assert discover("kubernetes", "--ingress", "--prune").code == 4
    assert names() == {"shop/web", "shop/www.example.com"}


def test_invalid_labels_stop_neither_others_nor_remove_their_monitor(discover: Discover, docker: Docker) -> None:
    docker.run("web", SHOP)
    docker.run("api", SHOP | {"pulsekeeper.name": "API"})
    discover("docker")
    docker.containers.clear()
    docker.run("web", SHOP | {"pulsekeeper.interval": "hunter2"})
    docker.run("api", SHOP | {"pulsekeeper.name": " "})
    docker.run("new", SHOP | {"pulsekeeper.url": "https://new.example.com/"})
    docker.run("late", SHOP | {"pulsekeeper.expect_status": "1000"})  # which the server refuses
    ran = discover("docker", "--prune", "--json")
    found = json.loads(ran.out)
    assert (ran.code, found["created"], found["deleted"]) == (1, 1, 0)
    assert [(one["place"], one["label"]) for one in found["problems"]] == [
        ("container api", "pulsekeeper.name"),
        ("container late", "pulsekeeper.url"),
        ("container web", "pulsekeeper.interval"),
    ]
    assert found["problems"][1]["message"].startswith("expect_status: ")
    assert "hunter2" not in ran.out + ran.err
    assert names() == {"web", "API", "new"}


def test_a_monitor_of_a_person_is_not_taken_over(discover: Discover, docker: Docker, user: User) -> None:
    MonitorFactory(owner=user, name="web", url="https://mine.example.com/")
    docker.run("web", SHOP)
    ran = discover("docker", "--prune")
    assert (ran.code, "hand it over by the tag discovered:host-1" in ran.err) == (1, True)
    assert Monitor.objects.get().url == "https://mine.example.com/"
    docker.containers.clear()
    docker.run("api", SHOP)
    discover("docker")
    docker.containers.clear()
    docker.run("api", SHOP | {"pulsekeeper.name": "web"})
    assert discover("docker", "--prune").code == 1
    assert names() == {"web", "api"}


def test_another_name_keeps_the_history(discover: Discover, docker: Docker) -> None:
    docker.run("web", SHOP)
    discover("docker")
    before = Monitor.objects.get().pk
    docker.containers.clear()
    docker.run("web", SHOP | {"pulsekeeper.name": "Shop"})
    ran = discover("docker", "--prune")
    assert "name: web → Shop" in ran.out
    assert (Monitor.objects.get().pk, Monitor.objects.get().name) == (before, "Shop")


def test_labels_read_neither_files_nor_variables(
    discover: Discover, docker: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PK_TOKEN", "hunter2")
    asked: list[Any] = []
    request = applying.Account._send

    def spy(self: Any, method: str, path: str, body: Any, **options: Any) -> Any:
        asked.append(body)
        return request(self, method, path, body, **options)

    monkeypatch.setattr(applying.Account, "_send", spy)
    docker.run("web", SHOP | {"pulsekeeper.name": "${PK_TOKEN}", "pulsekeeper.text_contains": "${keep:PK_TOKEN}"})
    docker.run("x", SHOP | {"pulsekeeper.name": "x\x1b[31m\u202ey"})
    ran = discover("docker")
    assert "hunter2" not in json.dumps(asked) + ran.out + ran.err
    assert all(body["variables"] == {} for body in asked)
    assert names() == {"${PK_TOKEN}"}
    assert "\x1b" not in ran.out + ran.err


def test_a_project_token(discover: Discover, docker: Docker, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    project = ProjectFactory(owner=user, name="Shop")
    MonitorFactory(owner=user, name="web")
    token = create_token(Caller(user), project_id=project.public_id, name="CI", ttl_seconds=None, now=utc_now())[1]
    monkeypatch.setenv("PULSEKEEPER_TOKEN", token)
    docker.run("web", SHOP)
    assert "needs --project" in discover("docker").err
    other = discover("docker", "--project", "Other")
    assert (other.code, "nothing was changed" in other.err) == (2, True)
    assert discover("docker", "--project", "Shop").code == 0
    assert Monitor.objects.get(project=project).tags == ["discovered:host-1"]
    docker.containers.clear()
    assert discover("docker", "--project", "Shop", "--prune", "--allow-empty").code == 0
    assert names() == {"web"}


def test_a_full_plan(discover: Discover, docker: Docker, user: User) -> None:
    user.plan = PlanFactory(monitor_limit=2)
    user.save(update_fields=["plan"])
    for name in ("a", "b", "c"):
        docker.run(name, SHOP | {"pulsekeeper.url": f"https://{name}.example.com/"})
    full = discover("docker")
    assert (full.code, "exceed the plan's limit of 2" in full.err, names()) == (2, True, set())
    docker.containers.pop()
    assert discover("docker").code == 0
    docker.containers.pop(0)
    docker.run("d", SHOP | {"pulsekeeper.url": "https://d.example.com/"})
    assert discover("docker", "--prune").code == 0
    assert names() == {"b", "d"}
    docker.containers.pop(0)
    for name in ("e", "f"):
        docker.run(name, SHOP | {"pulsekeeper.url": f"https://{name}.example.com/"})
    over = discover("docker", "--prune")
    assert (over.code, names()) == (2, {"d"})
    assert "1 monitor removed and 0 applied, but the others not: exceed the plan's limit of 2" in over.err


def test_more_monitors_than_one_request_takes(
    discover: Discover, docker: Docker, monkeypatch: pytest.MonkeyPatch, user: User
) -> None:
    monkeypatch.setattr(applying, "MAX_ENTRIES", 2)
    for number in range(5):
        docker.run(f"c{number}", SHOP)
    dry = discover("docker", "--project", "New", "--dry-run")
    assert (dry.code, dry.out.splitlines()[-1]) == (0, "6 to create, 0 to change, 0 to remove."), dry.err
    assert discover("docker", "--project", "New").out.splitlines()[-1] == "6 created, 0 changed, 0 removed."
    assert len(names()) == 5


def test_two_at_once(discover: Discover, docker: Docker) -> None:
    for number in range(4):
        docker.run(f"c{number}", SHOP)
    discover("docker")
    docker.containers[:] = [docker.containers[0]]
    docker.run("new", SHOP)
    command = [sys.executable, "-m", "pulsekeeper", "discover", "docker", "--source", "host-1", "--prune"]
    both = [
        subprocess.Popen([*command, "--confirm-after", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for _ in range(2)
    ]
    for process in both:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output.decode()
    assert sorted(Monitor.objects.values_list("name", flat=True)) == ["c0", "new"]


def test_a_compose_file(discover: Discover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text("services: {web: {labels: ['pulsekeeper.url=https://${SHOP_HOST}/']}}\n")
    ran = discover("compose", str(file))
    assert (ran.code, "needs the variable SHOP_HOST: give --env SHOP_HOST" in ran.err) == (1, True)
    monkeypatch.setenv("SHOP_HOST", "shop.example.com")
    assert discover("compose", str(file), "--env", "SHOP_HOST").code == 0
    assert Monitor.objects.get().url == "https://shop.example.com/"
    file.write_text("services: [\n")
    broken = discover("compose", str(file), "--prune", "--allow-empty")
    assert (broken.code, f"{file}:" in broken.err) == (2, True)
    assert Monitor.objects.count() == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("docker", "--ingress"), "--ingress is for kubernetes only"),
        (("docker", "--env", "X=1"), "--env is for compose only"),
        (("docker", "file"), "compose needs a FILE"),
        (("compose",), "compose needs a FILE"),
        (("compose", "none.yaml"), "No such file"),
        (("compose", "x", "--env", "PK_UNSET"), "--env PK_UNSET is not in the environment"),
        (("docker", "--set", "interval=x"), "--set interval: "),
        (("docker", "--source", "Not OK"), "must be 1 to 29 lower-case letters"),
        (("kubernetes", "--max-per-namespace", "0"), "at least 1"),
        (("docker", "--project", "prj_abc"), "the name of a project, not its id"),
        (("docker", "--confirm-after", "nan"), "--confirm-after must be 0 to 3600"),
        (("kubernetes", "--kubeconfig", "/none/config"), "/none/config: No such file"),
    ],
)
def test_usage_errors(discover: Discover, options: tuple[str, ...], words: str) -> None:
    ran = discover(*options)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert "Traceback" not in ran.err
