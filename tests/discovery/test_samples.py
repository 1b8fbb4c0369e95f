"""The samples in docs/use/discovery.md and beside it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from pulsekeeper.discover.command import Discover
from pulsekeeper.discover.compose import list_compose
from pulsekeeper.discover.labels import Labelled, Listing, discover
from pulsekeeper.discover.traefik import read_rule
from pulsekeeper.manifest.yaml_reader import read
from tests.discovery.platforms import Kubernetes
from tests.faults.virtualenv import programs_for
from tests.test_guides import BLOCK

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "use" / "discovery.md").read_text()
SAMPLE = ROOT / "docs" / "samples" / "discovery-kubernetes.yaml"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(SAMPLE.read_text()))
VALIDATE = """
import sys, yaml, kubernetes_validate
for found in yaml.safe_load_all(open(sys.argv[1])):
    for version in ("1.25", "1.37"):
        kubernetes_validate.validate(found, version, strict=True)
"""


def blocks(language: str) -> list[str]:
    return [text for _, name, _, text in BLOCK.findall(PAGE) if name == language]


def arguments(command: str) -> dict[str, Any]:
    parser = ArgumentParser(exit_on_error=False)
    Discover().add_arguments(parser)
    return vars(parser.parse_intermixed_args(shlex.split(command.partition(" discover ")[2])))


def test_the_compose_file() -> None:
    listing = list_compose(read(blocks("yaml")[0].encode()), traefik=False, variables={})
    found = discover(listing, defaults={}, max_per_namespace=100)
    assert found.complaints == []
    health, port, shop = (one.entry for one in found.monitors)
    assert (health["name"], health["interval_sec"]) == ("api: health", 600)
    assert health["content_rules"] == [{"type": "json_field", "path": "status", "equals": "ok"}]
    assert (port["type"], port["url"]) == ("port", "tcp://api.example.com:5432")
    assert (shop["name"], shop["interval_sec"], shop["tags"]) == ("Shop", 300, ["production", "web"])


def test_the_service() -> None:
    metadata = yaml.safe_load(blocks("yaml")[1])["metadata"]
    one = Labelled(place="service", name=metadata["name"], namespace="shop", labels=metadata["annotations"])
    (monitor,) = discover(Listing([one]), defaults={}, max_per_namespace=1).monitors
    assert (monitor.entry["name"], monitor.entry["interval_sec"]) == ("shop/api", 300)


def test_the_rules_of_traefik() -> None:
    rows = re.findall(r"^- ``(.+)``: (.+)$", PAGE, re.MULTILINE)
    assert len(rows) == 4
    for rule, monitors in rows:
        found, _ = read_rule(rule)
        shown = [f"`{host}{path.rstrip('/')}`" for host, path in found]
        assert ", ".join(shown) == (monitors if found else ""), rule


def test_all_labels_of_the_table_are_known() -> None:
    table = PAGE.partition("| label | meaning |")[2].partition("\n\n")[0]
    names = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1] if row else "")}
    assert len(names) > 20
    labels = {f"pulsekeeper.{name}": "" for name in names}
    found = discover(Listing([Labelled(place="x", name="x", labels=labels)]), defaults={}, max_per_namespace=1)
    assert not [complaint for complaint in found.complaints if "unknown" in complaint.message]


def test_the_commands() -> None:
    commands = re.findall(r"^(?:    |\*/).*pulsekeeper discover .+$", PAGE, re.MULTILINE)
    assert len(commands) == 4
    assert {arguments(command)["platform"] for command in commands} == {"docker", "compose"}


def test_the_cluster_role_may_list_what_the_command_reads() -> None:
    (role,) = (one for one in OBJECTS if one["kind"] == "ClusterRole")
    assert all(rule["verbs"] == ["list"] for rule in role["rules"])
    listed = {kind: base.split("/")[2] for kind, base in Kubernetes.GROUPS.items() if base.startswith("/apis/")}
    listed["services"] = ""
    assert {rule["resources"][0]: rule["apiGroups"][0] for rule in role["rules"]} == listed
    (job,) = (one for one in OBJECTS if one["kind"] == "CronJob")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][:4] == ["python", "-m", "pulsekeeper", "discover"]
    assert arguments(shlex.join(container["args"]))["ingress"] is True


def test_the_objects_are_valid() -> None:
    try:
        programs = programs_for(ROOT, lock_name="deploy.txt")
    except SystemExit as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"requirements/deploy.txt cannot be installed: {error}")
    command = [str(programs / "python"), "-c", VALIDATE, str(SAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
