"""benchmarks/strangers.py sends the inputs it lists and reports its findings. Tests do not measure their cost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.straining.values import LIMIT, shapes, values
from benchmarks.strangers import EXCEPTIONS, LIMITS

ROOT = Path(__file__).resolve().parent.parent


def test_the_benchmark_reports_the_most_expensive_inputs(clean_environment: dict[str, str]) -> None:
    command = [sys.executable, "benchmarks/strangers.py", "--quick", "--top", "2"]
    done = subprocess.run(
        command, cwd=ROOT, env=clean_environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode in (0, 1), done.stderr[-3_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == {"anonymous_cpu_ms", "anonymous_mib", "tenant_cpu_ms", "tenant_mib", "inputs"}
    assert found["inputs"] > 300
    assert all(figure > 0 for figure in found.values())
    callers = {line.partition(" ")[0] for line in done.stdout.splitlines()}
    assert callers >= set(LIMITS)


def test_values_reach_the_limits_of_a_schema() -> None:
    texts = [value for _, value in values({"type": "string", "maxLength": 2_000})]
    assert {len(text) for text in texts} >= {2_000, LIMIT}
    lists = [value for _, value in values({"type": "array", "maxItems": 5, "items": {"type": "integer"}})]
    assert {len(value) for value in lists if isinstance(value, list)} >= {5, 40_000}
    assert max(len(body) for _, body in shapes(10_000)) > 1_536 * 1024


def test_every_exception_names_what_bounds_it() -> None:
    for name, (_, bound) in EXCEPTIONS.items():
        path = bound.partition(":")[0]
        assert (ROOT / path).is_file(), name
