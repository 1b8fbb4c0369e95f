"""A real Prometheus with the files of deploy/prometheus."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

from tests.processes.up import free_port
from tests.processes.waiting import until

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
START_SECONDS = 60

Ask = Callable[[str], Any]


@contextmanager
def running_prometheus(folder: Path, config: dict[str, Any]) -> Iterator[Ask]:
    """Run it with this configuration in `folder`, which contains the rules. Yield a function that asks its API."""
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        shutil.which("prometheus") or "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:

        def ask(path: str) -> Any:
            with urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=START_SECONDS) as answer:
                return json.load(answer)["data"]

        def answers() -> bool:
            try:
                return bool(ask("status/buildinfo"))
            except OSError:
                return False

        try:
            until(answers, START_SECONDS, "Prometheus answers")
            yield ask
        finally:
            process.terminate()


def firing(ask: Ask) -> list[dict[str, str]]:
    """Return the labels of the alerts that fire."""
    return [alert["labels"] for alert in ask("alerts")["alerts"] if alert["state"] == "firing"]
