"""docs/operate/metrics.md and the dashboard against the existing metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.metrics import COUNTERS, GAUGES, HISTOGRAMS, INSTRUMENTS, LEVELS
from monitors.exposition import metrics_of

ROOT = Path(__file__).parents[2]
DOCS, PROMETHEUS = ROOT / "docs", ROOT / "deploy" / "prometheus"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana-dashboard.json").read_text())
KINDS = {"Counter": "counter", "Histogram": "histogram", "Level": "gauge", "Gauge": "gauge", "Recent": "gauge"}


def row(metric: Any) -> str:
    labels = ", ".join(f"`{label}`" for label in getattr(metric, "labels", ())) or "-"
    return f"| `{metric.name}` | {KINDS[type(metric).__name__]} | {labels} | {metric.help} |"


def test_the_table_is_what_there_is() -> None:
    lines = (DOCS / "operate" / "metrics.md").read_text().splitlines()
    written = [line for line in lines if re.match(rf"\| `pulsekeeper_\w+` \| ({'|'.join(KINDS.values())}) \|", line)]
    assert written == [row(metric) for metric in [*GAUGES, *INSTRUMENTS]]


def of_monitors() -> dict[str, str]:
    """Return the metrics of GET /v1/metrics by name, with their help texts."""
    return {metric.name: metric.documentation for metric in metrics_of([])}


@pytest.mark.parametrize("name", ["pulsekeeper", "monitors"])
def test_alerts_are_listed_and_tested_and_ask_for_what_there_is(name: str) -> None:
    page = {"pulsekeeper": "operate", "monitors": "use"}[name]
    groups = yaml.safe_load((PROMETHEUS / f"{name}.rules.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    alerts = [rule["alert"] for rule in rules if "alert" in rule]
    written = (DOCS / page / "metrics.md").read_text()
    assert re.findall(r"^\| `([A-Z]\w+)` \|", written, re.MULTILINE) == alerts
    tests = yaml.safe_load((PROMETHEUS / f"{name}.tests.yml").read_text())["tests"]
    assert {test["name"] for test in tests} == {rule.get("alert") or rule["record"] for rule in rules}
    known = {metric.name for metric in [*GAUGES, *INSTRUMENTS]} | of_monitors().keys()
    assert {
        name for rule in rules for name in re.findall(r"pulsekeeper_\w+?(?=(?:_sum|_count)?\b)", rule["expr"])
    } <= known
    assert {rule["labels"]["severity"] for rule in rules if "alert" in rule} == {"critical", "warning"}


def test_the_metrics_of_monitors_are_listed() -> None:
    written = (DOCS / "use" / "metrics.md").read_text()
    assert dict(re.findall(r"^\| `(pulsekeeper_\w+)` \| (.*) \|$", written, re.MULTILINE)) == of_monitors()


def test_names_follow_the_custom() -> None:
    names = [metric.name for metric in [*GAUGES, *INSTRUMENTS]]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"pulsekeeper_[a-z_]+", name) for name in names)
    assert all(counter.name.endswith("_total") for counter in COUNTERS)
    assert all(list(histogram.bounds) == sorted(histogram.bounds) for histogram in HISTOGRAMS)


def test_the_dashboard_asks_for_what_there_is_and_for_all_of_it() -> None:
    series = {name: name for group in (GAUGES, COUNTERS, LEVELS) for name in (metric.name for metric in group)}
    series |= {f"{h.name}_{part}": h.name for h in HISTOGRAMS for part in ("bucket", "sum", "count")}
    asked = {
        name
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
        for name in re.findall(r"pulsekeeper_\w+", target["expr"])
    }
    assert asked <= set(series)
    assert {series[name] for name in asked} == set(series.values())


def test_the_dashboard_can_be_imported() -> None:
    assert {"title", "uid", "schemaVersion", "panels", "templating"} <= set(DASHBOARD)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in DASHBOARD["panels"]:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["title"]
        assert panel["description"]
        assert all(target["legendFormat"] for target in panel["targets"])
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in DASHBOARD["panels"]]
    assert len(places) == len(set(places))
