"""The Helm chart, rendered by Helm's own code and validated with the schemas of Kubernetes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from honcho.environ import parse_procfile
from jsonschema import Draft7Validator

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
# Names in the documentation for the destinations of values.yaml.
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
    "image": {"tag": f"1.0.0@sha256:{'0' * 64}"},
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
WRONG = [
    *(PLAIN | {"settings": {name: "secret"}} for name in SECRETS),
    PLAIN | {"processes": {"worker": {"replica": 3}}},
]
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
FREE = (".settings", ".nodeSelector", ".serviceMonitor.labels")  # their keys are not ours
Objects = dict[tuple[str, str], dict[str, Any]]


def render(chart: Path, values: list[dict[str, Any]], wrong: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what render.py prints, or skip the test where its virtualenv cannot be made."""
    try:
        programs = programs_for(ROOT, lock_name="deploy.txt")
    except SystemExit as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"requirements/deploy.txt cannot be installed: {error}")
    script = ROOT / "tests" / "chart" / "render.py"
    done = subprocess.run(
        [str(programs / "python"), str(script), str(chart), json.dumps(values), json.dumps(wrong)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def rendered() -> dict[str, Any]:
    return render(CHART, [PLAIN, FULL], WRONG)


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
    for name, refusal in zip(SECRETS, rendered["refusals"], strict=False):  # others follow
        assert f"set {name}_FILE to /run/secrets/" in refusal


def test_helm_refuses_values_by_the_schema(rendered: dict[str, Any]) -> None:
    refusal = rendered["refusals"][-1]
    assert "/processes/worker" in refusal or "processes.worker" in refusal
    assert "replica" in refusal


def keys_of(values: dict[str, Any], path: str = "") -> set[str]:
    """Return the paths of all keys, without those of maps whose keys are free or of Kubernetes."""
    found = set()
    for key, value in values.items():
        at = f"{path}.{key}"
        inner = isinstance(value, dict) and key not in {"requests", "limits"} and not at.startswith(FREE)
        found |= keys_of(value, at) if inner and value else {at}
    return found


def keys_of_schema(schema: dict[str, Any], path: str = "") -> set[str]:
    """Return the paths of all keys that a schema names, as `keys_of` does."""
    found = set()
    for key, value in schema["properties"].items():
        at = f"{path}.{key}"
        inner = SCHEMA["definitions"][value["$ref"].rpartition("/")[2]] if "$ref" in value else value
        deeper = "properties" in inner and key not in {"requests", "limits"}
        found |= keys_of_schema(inner, at) if deeper else {at}
    return found


def test_the_schema_has_every_value_and_no_other() -> None:
    Draft7Validator.check_schema(SCHEMA)
    assert keys_of_schema(SCHEMA) - {".global"} == keys_of(VALUES)


def merged(values: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Merge values as Helm does: maps by key, everything else whole."""
    both = {
        key: merged(values[key], value) if isinstance(value, dict) and isinstance(values.get(key), dict) else value
        for key, value in other.items()
    }
    return values | both


def documented_values() -> dict[str, Any]:
    """Return what the options --set and --set-json of docs/operate/kubernetes.md set."""
    values: dict[str, Any] = {}
    page = (ROOT / "docs" / "operate" / "kubernetes.md").read_text()
    for option, text in re.findall(r"--(set|set-json) ('[^']*'|[^\s`]+)", page):
        path, _, value = shlex.split(text)[0].partition("=")
        nested: Any = json.loads(value) if option == "set-json" else value
        for key in reversed(path.split(".")):
            nested = {key: nested}
        values = merged(values, nested)
    return values


def refusals_of(values: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft7Validator(SCHEMA).iter_errors(merged(VALUES, values))]


def test_the_schema_takes_what_is_documented() -> None:
    assert {"host", "image", "networkPolicy", "settings", "trustedProxies"} <= documented_values().keys()
    for values in ({}, PLAIN, FULL, documented_values()):
        assert refusals_of(values) == []


@pytest.mark.parametrize(
    "values",
    [
        {"imagePullSecret": []},
        {"host": "https://pulsekeeper.example.com"},
        {"host": "pulsekeeper.example.com:443"},
        {"emailFrom": "pulsekeeper"},
        {"image": {"repository": "Registry/Pulsekeeper"}},
        {"image": {"tag": "1.0.0@sha256:abc"}},
        {"image": {"tag": 1.0}},
        {"image": {"pullPolicy": "always"}},
        {"imagePullSecrets": ["registry"]},
        {"existingSecret": ""},
        {"trustedProxies": ["10.0.0.0/8"]},
        {"metricsAllowed": "10.0.0.0/8;10.1.0.0/16"},
        {"settings": {"sign_up": True}},
        {"settings": {"SIGN_UP": None}},
        {"settings": {"ALLOWED_HOSTS": ["a", "b"]}},
        {"pings": "true"},
        {"processes": {"worker": {"replica": 3}}},
        {"processes": {"worker": {"replicas": "two"}}},
        {"processes": {"worker": {"replicas": -1}}},
        {"processes": {"workers": {"replicas": 3}}},
        {"processes": {"web": {"resources": {"request": {}}}}},
        {"processes": {"web": {"resources": {"limits": {"memory": "512MB"}}}}},
        {"processes": {"web": {"resources": {"limits": {"memory": -1}}}}},
        {"migrate": {"replicas": 1}},
        {"nodeSelector": {"disk": True}},
        {"tolerations": [{"operator": "exists"}]},
        {"autoscaling": {"minReplicas": 0}},
        {"autoscaling": {"lagSeconds": 5}},
        {"autoscaling": {"cpu": "70%"}},
        {"serviceMonitor": {"interval": "15"}},
        {"networkPolicy": {"ingress": [{}]}},
        {"networkPolicy": {"destinations": {"smtp": {"to": []}}}},
        {"networkPolicy": {"destinations": {"broker": {"to": [{"ipBlock": {"cidr": "10.0.0.1"}}]}}}},
        {"networkPolicy": {"dns": {"ports": [{"port": 70_000}]}}},
        {"networkPolicy": {"dns": {"ports": [{"port": 53, "protocol": "udp"}]}}},
        {"networkPolicy": {"extraEgress": [{"from": []}]}},
    ],
    ids=json.dumps,
)
def test_the_schema_refuses_wrong_values(values: dict[str, Any]) -> None:
    assert refusals_of(PLAIN | values) != []


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
    """Destinations are identified by addresses that only one of them has."""
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
    """Targets are public addresses: not those of the cluster, nor the metadata services of clouds."""
    rules = plain["NetworkPolicy", "demo-pulsekeeper-worker"]["spec"]["egress"]
    public = [peer["ipBlock"] for rule in rules if not rule["ports"] for peer in rule["to"]]
    assert {"10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"} <= set(public[0]["except"])
    assert [block["cidr"] for block in public] == ["0.0.0.0/0", "2000::/3"]


def test_the_number_of_workers_changes_only_if_asked(plain: Objects, full: Objects) -> None:
    assert not any(kind == "HorizontalPodAutoscaler" for kind, _ in plain)
    autoscaler = full["HorizontalPodAutoscaler", "demo-pulsekeeper-worker"]["spec"]
    resource, external = autoscaler["metrics"]
    assert resource["resource"]["target"] == {"type": "AverageValue", "averageValue": "700m"}
    assert external["external"]["target"] == {"type": "Value", "value": "1"}
    (series,) = re.findall(r"- record: (\S+)", RULES)
    assert external["external"]["metric"] == {"name": series.replace(":", "_")}
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
