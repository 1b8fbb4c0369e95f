"""The Helm chart, rendered by Helm's own code and validated with the schemas of Kubernetes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from typing import Any

import pytest
import yaml
from honcho.environ import parse_procfile

from accounts.management.commands import create_account
from config.settings import env
from core.version import product_version
from tests.faults.reach import documented
from tests.faults.virtualenv import ROOT, programs_for

CHART = ROOT / "deploy" / "helm" / "pulsekeeper"
PROCESSES = parse_procfile((ROOT / "Procfile").read_text()).processes.keys()
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
UNIT = (ROOT / "deploy" / "systemd" / "pulsekeeper@.service").read_text()
RULES = (ROOT / "deploy" / "prometheus" / "pulsekeeper.rules.yml").read_text()
# What the documents call the destinations of values.yaml.
DOCUMENTED = {
    "database": "database",
    "broker": "broker",
    "mailServer": "mail server",
    "targets": "targets",
    "receivers": "receivers of alerts",
    "providers": "providers",
    "registries": "registries",
}
ADDRESSES = {name: f"192.0.2.{number}/32" for number, name in enumerate(DOCUMENTED)}
PLAIN: dict[str, Any] = {"host": "pulsekeeper.example.com"}
FULL: dict[str, Any] = {
    **PLAIN,
    "settings": {"SIGN_UP": "true"},
    "trustedProxies": "10.0.0.0/8",
    "metricsAllowed": "10.0.0.0/8",
    "pings": False,
    "autoscaling": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "networkPolicy": {
        "ingress": [{"namespaceSelector": {}}],
        "destinations": {name: {"to": [{"ipBlock": {"cidr": at}}]} for name, at in ADDRESSES.items()},
    },
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"operator": "Exists"}],
    "imagePullSecrets": [{"name": "registry"}],
}
SECRETS = sorted(set(env.from_files) - {"DATABASE_URL", "REDIS_URL", "SECRET_KEY", "ENCRYPTION_KEYS", "EMAIL_URL"})
WRONG = [PLAIN | {"settings": {name: "secret"}} for name in SECRETS]
Objects = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def rendered() -> dict[str, Any]:
    try:
        programs = programs_for(ROOT, lock_name="chart.txt")
    except SystemExit as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"requirements/chart.txt cannot be installed: {error}")
    script = ROOT / "tests" / "chart" / "render.py"
    done = subprocess.run(
        [str(programs / "python"), str(script), str(CHART), json.dumps([PLAIN, FULL]), json.dumps(WRONG)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def plain(rendered: dict[str, Any]) -> Objects:
    return {(each["kind"], each["metadata"]["name"]): each for each in rendered["objects"][0]}


@pytest.fixture(scope="module")
def full(rendered: dict[str, Any]) -> Objects:
    return {(each["kind"], each["metadata"]["name"]): each for each in rendered["objects"][1]}


def pods(objects: Objects) -> dict[str, dict[str, Any]]:
    """Return the specs of all pods, by process."""
    return {
        each["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]["template"]["spec"]
        for (kind, _), each in objects.items()
        if kind in {"Deployment", "Job"}
    }


def test_lint_finds_nothing_and_every_object_is_valid(rendered: dict[str, Any]) -> None:
    assert {message["error"] for message in rendered["lint"]} <= {"icon is recommended"}
    assert rendered["invalid"] == []


def test_the_chart_has_the_version_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (product_version(), product_version())


def test_every_process_runs_as_in_compose(plain: Objects) -> None:
    found = pods(plain)
    assert found.keys() == PROCESSES | {"migrate"}
    for name, pod in found.items():
        container, service = pod["containers"][0], COMPOSE[name]
        assert container["args"] == service["command"]
        assert container["image"] == f"pulsekeeper:{product_version()}"
        assert f"{pod['terminationGracePeriodSeconds']}s" == service["stop_grace_period"]
        assert f"TimeoutStopSec={pod['terminationGracePeriodSeconds']}\n" in UNIT
        assert name == "migrate" or {"startupProbe", "livenessProbe"} <= container.keys()
        assert container["resources"].keys() == {"requests", "limits"}


def test_a_pod_can_do_no_more_than_it_must(plain: Objects, full: Objects) -> None:
    for name, pod in pods(plain).items():
        context = pod["securityContext"]
        container = pod["containers"][0]["securityContext"]
        assert (context["runAsNonRoot"], context["runAsUser"], context["runAsGroup"]) == (True, 10001, 10001)
        assert container == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert pod["automountServiceAccountToken"] is False
        assert [each["name"] for each in pod["volumes"]] == ["tmp", "secrets"]
        sysctls = [{"name": "net.ipv4.ping_group_range", "value": "10001 10001"}]
        assert context.get("sysctls") == (sysctls if "targets" in documented().get(name, ()) else None)
    assert not any("sysctls" in pod["securityContext"] for pod in pods(full).values())


def test_secrets_are_files(full: Objects) -> None:
    for pod in pods(full).values():
        variables = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
        files = {name.removesuffix("_FILE"): value for name, value in variables.items() if name.endswith("_FILE")}
        assert files == {name: f"/run/secrets/{name.lower()}" for name in files}
        assert files.keys() <= set(env.from_files)
        assert not variables.keys() & set(env.from_files)
        assert variables["SIGN_UP"] == "true"


def test_secrets_among_the_settings_are_refused(rendered: dict[str, Any]) -> None:
    for name, refusal in zip(SECRETS, rendered["refusals"], strict=True):
        assert f"set {name}_FILE to /run/secrets/" in refusal


def test_the_notes_have_a_command_that_works(rendered: dict[str, Any]) -> None:
    words = shlex.split(rendered["notes"].partition("manage.py create_account")[2])
    create_account.Command().create_parser("manage.py", "create_account").parse_args(words)


def test_no_pod_is_killed_because_the_broker_is_away(plain: Objects) -> None:
    for name, pod in pods(plain).items():
        if name not in ("web", "migrate"):
            container = pod["containers"][0]
            assert container["startupProbe"]["exec"] == container["livenessProbe"]["exec"]
            assert container["livenessProbe"]["exec"]["command"][-1].endswith("|| [ $? -eq 75 ]")


def test_network_policies_allow_what_the_documents_say(full: Objects) -> None:
    """By addresses that only one destination has."""
    names = {address: DOCUMENTED[name] for name, address in ADDRESSES.items()}
    for process, reached in {**documented(), "migrate": ["database", "broker"]}.items():
        policy = full["NetworkPolicy", f"demo-pulsekeeper-{process}"]["spec"]
        assert policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == process
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        dns, *others = policy["egress"]
        assert {port["port"] for port in dns["ports"]} == {53}
        assert sorted(names[to["ipBlock"]["cidr"]] for rule in others for to in rule["to"]) == sorted(reached)
        assert bool(policy.get("ingress")) == (process == "web")


def test_internet_is_not_the_cluster(plain: Objects) -> None:
    """Targets are public addresses: not those of the cluster, and not where clouds serve credentials."""
    rules = plain["NetworkPolicy", "demo-pulsekeeper-worker"]["spec"]["egress"]
    public = [peer["ipBlock"] for rule in rules if not rule["ports"] for peer in rule["to"]]
    assert {"10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"} <= set(public[0]["except"])
    assert [block["cidr"] for block in public] == ["0.0.0.0/0", "2000::/3"]


def test_lag_starts_workers_only_if_asked(plain: Objects, full: Objects) -> None:
    assert not any(kind == "HorizontalPodAutoscaler" for kind, _ in plain)
    autoscaler = full["HorizontalPodAutoscaler", "demo-pulsekeeper-worker"]["spec"]
    assert autoscaler["metrics"][0]["external"]["metric"] == {"name": "pulsekeeper_lag_seconds"}
    assert plain["Deployment", "demo-pulsekeeper-worker"]["spec"]["replicas"] == 2
    assert "replicas" not in full["Deployment", "demo-pulsekeeper-worker"]["spec"]


def test_selectors_find_their_pods(full: Objects) -> None:
    for (kind, name), each in full.items():
        if kind in {"PodDisruptionBudget", "NetworkPolicy"}:
            process = name.removeprefix("demo-pulsekeeper-")
            selector = each["spec"]["podSelector" if kind == "NetworkPolicy" else "selector"]["matchLabels"]
            owner = full["Job" if process == "migrate" else "Deployment", name]
            assert selector.items() <= owner["spec"]["template"]["metadata"]["labels"].items()
    service = full["Service", "demo-pulsekeeper"]
    web = full["Deployment", "demo-pulsekeeper-web"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= web.items()
    monitor = full["ServiceMonitor", "demo-pulsekeeper"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    (job,) = [each["replacement"] for each in endpoint["relabelings"] if each.get("targetLabel") == "job"]
    assert {job} == set(re.findall(r'job="([^"]*)"', RULES))
