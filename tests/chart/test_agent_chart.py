"""The chart of an agent, rendered with Helm's own code."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from core.version import product_version
from tests.chart.test_chart import render
from tests.faults.virtualenv import ROOT

CHART = ROOT / "deploy" / "helm" / "pulsekeeper-agent"
SERVICE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "agent" / "compose.yaml").read_text())["services"]["agent"]
PLAIN: dict[str, Any] = {"server": "https://pulsekeeper.example.com"}
FULL: dict[str, Any] = {
    **PLAIN,
    "image": {"tag": f"1.0.0@sha256:{'0' * 64}"},
    "imagePullSecrets": [{"name": "registry"}],
    "allow": "10.1.0.0/16",
    "settings": {"CONNECTIVITY_TARGETS": ""},
    "pings": False,
    "storage": {"className": "fast"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"operator": "Exists"}],
    "networkPolicy": {"enabled": False},
}
WRONG: list[dict[str, Any]] = [
    {},
    {"server": "http://pulsekeeper.example.com"},
    PLAIN | {"allow": ["10.0.0.0/8"]},
    PLAIN | {"join": "token"},
]


@pytest.fixture(scope="module")
def rendered() -> dict[str, Any]:
    return render(CHART, [PLAIN, FULL], WRONG)


def found(rendered: dict[str, Any], number: int, kind: str) -> dict[str, Any]:
    (each,) = [each for each in rendered["objects"][number] if each["kind"] == kind]
    spec: dict[str, Any] = each["spec"]
    return spec


def test_lint_finds_nothing_and_every_object_is_valid(rendered: dict[str, Any]) -> None:
    assert {message["error"] for message in rendered["lint"]} <= {"icon is recommended"}
    assert rendered["invalid"] == []
    assert all(rendered["refusals"])
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (product_version(), product_version())


def test_the_agent_runs_as_in_compose(rendered: dict[str, Any]) -> None:
    stateful = found(rendered, 0, "StatefulSet")
    pod = stateful["template"]["spec"]
    (container,) = pod["containers"]
    assert f"{pod['terminationGracePeriodSeconds']}s" == SERVICE["stop_grace_period"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 10001)
    assert pod["automountServiceAccountToken"] is False
    assert {each["name"] for each in container["env"]} == SERVICE["environment"].keys()
    assert SERVICE["volumes"] == [f"state:{container['volumeMounts'][1]['mountPath']}"]
    assert [each["metadata"]["name"] for each in stateful["volumeClaimTemplates"]] == ["state"]


def test_it_accepts_no_connections_and_reaches_the_internet(rendered: dict[str, Any]) -> None:
    policy = found(rendered, 0, "NetworkPolicy")
    stateful = found(rendered, 0, "StatefulSet")
    assert policy["podSelector"]["matchLabels"] == stateful["template"]["metadata"]["labels"]
    assert (policy["policyTypes"], policy.get("ingress")) == (["Ingress", "Egress"], None)
    assert {"10.0.0.0/8", "169.254.0.0/16"} <= set(policy["egress"][1]["to"][0]["ipBlock"]["except"])


def test_values(rendered: dict[str, Any]) -> None:
    assert [each["kind"] for each in rendered["objects"][1]] == ["StatefulSet"]
    pod = found(rendered, 1, "StatefulSet")["template"]["spec"]
    values = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert (values["ALLOWED_PRIVATE_NETWORKS"], values["CONNECTIVITY_TARGETS"]) == ("10.1.0.0/16", "")
    assert values["PULSEKEEPER_JOIN_TOKEN"] is None
    assert "sysctls" not in pod["securityContext"]


def test_the_schema_is_valid() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    Draft7Validator.check_schema(schema)
    assert schema["properties"].keys() - {"global"} == yaml.safe_load((CHART / "values.yaml").read_text()).keys()
