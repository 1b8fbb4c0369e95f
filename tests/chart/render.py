"""Render the Helm chart with several sets of values, and validate the results.

    python tests/chart/render.py CHART VALUES_JSON WRONG_VALUES_JSON

For a virtualenv with requirements/deploy.txt. Prints one JSON object: what `helm lint --strict` found, the objects of
each set, those that do not match the schemas of Kubernetes, the notes, and why each set of wrong values is refused.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import helm_python
import kubernetes_validate
import yaml

VERSIONS = ("1.25", "1.37")  # the oldest of Chart.yaml, and the newest with schemas
# Of the Prometheus operator, without a schema here.
WITHOUT_SCHEMA = {"ServiceMonitor"}


def main(path: str, values: list[dict[str, Any]], wrong: list[dict[str, Any]]) -> dict[str, Any]:
    linted = [helm_python.lint(path, each, strict=True) for each in values]
    with helm_python.Chart.load(path) as chart:
        rendered = [chart.render(each, name="demo", namespace="monitoring") for each in values]
        refusals = [refusal(chart, each) for each in wrong]
    objects = [
        [found for name, text in each.items() if name.endswith(".yaml") for found in yaml.safe_load_all(text) if found]
        for each in rendered
    ]
    return {
        "lint": [message for report in linted for message in report["messages"]],
        "objects": objects,
        "notes": rendered[0].get("pulsekeeper/templates/NOTES.txt"),
        "refusals": refusals,
        "invalid": [fault for each in objects for found in each for fault in faults(found)],
    }


def refusal(chart: helm_python.Chart, values: dict[str, Any]) -> str:
    try:
        chart.render(values, name="demo", namespace="monitoring")
    except (helm_python.HelmRenderError, helm_python.HelmValuesError) as error:
        return str(error)
    return ""


def faults(found: dict[str, Any]) -> list[str]:
    if found["kind"] in WITHOUT_SCHEMA:
        return []
    wrong = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(found, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            wrong.append(f"{version}: {found['kind']} {found['metadata']['name']}: {error}")
    return wrong


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], *map(json.loads, sys.argv[2:]))))  # noqa: T201
