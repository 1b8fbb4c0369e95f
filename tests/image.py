"""Run the processes of an image together as containers do: its user, a read-only root, no capabilities.

    python -m tests.image ROOT IMAGE_JSON IMAGES_JSON AGENT_ROOT AGENT_JSON

For deploy/try-image, which lists the requirements. Arguments: the mounted root of the image, and the output of `buildah
inspect` and `buildah images`; then root and inspection of the agent's image, which only has to start. The last line
printed is one JSON object: sizes, and the exit status of each process, stopped once it was healthy and `/readyz`
answered 200. Exits 1 if that does not happen, or the image is too large.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from honcho.environ import parse_procfile

from tests.faults.reach import database_url, relay_database
from tests.faults.system import serve_privately
from tests.processes.up import ROOT, free_port
from tests.processes.waiting import until

LARGEST_MB = 200  # over the base
MIGRATED_SECONDS = 120
READY_SECONDS = 240  # on shared cores
STOPPED_SECONDS = 90
STOPPED = (0, 128 + 15)  # it ended by itself, or its shell by SIGTERM

# As root, in separate namespaces; $0 is the root of the image.
CONTAINER = """
mount --bind "$0" "$0"
mount -o remount,bind,ro "$0"
mount -t tmpfs -o size=64m,mode=1777 none "$0/tmp"
mount -t proc none "$0/proc"
mount --rbind /dev "$0/dev"
exec chroot "$0" "$@"
"""
# As the image's user; $0 is the process, "$@" the entry point. Stop it at the end of the input.
TRY = """
if touch /srv/pulsekeeper/written; then exit 1; fi 2>/dev/null
"$@" "$0" &
until deploy/healthy "$0" 2>/dev/null; do kill -0 $!; sleep 1; done
! read -r _
kill $!
wait $!
"""


class Image:
    def __init__(self, root: str, config: dict[str, Any]) -> None:
        self._root = root
        self._config = config

    def start(self, command: Sequence[str], settings: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start a command with these settings."""
        user, _, group = self._config["User"].partition(":")
        variables = [*self._config["Env"], *(f"{name}={value}" for name, value in settings.items())]
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-euc", CONTAINER, self._root]
        setpriv = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"]
        dropped = ["--bounding-set=-all", "--inh-caps=-all"]
        inside = ["env", "--ignore-environment", f"--chdir={self._config['WorkingDir']}", *variables]
        words = [*unshare, *setpriv, *dropped, *inside, *command]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=sys.stderr)

    def start_entry_point(self, *arguments: str) -> subprocess.Popen[bytes]:
        return self.start([*self._config["Entrypoint"], *arguments], {})

    def start_process(self, name: str, settings: dict[str, str]) -> subprocess.Popen[bytes]:
        return self.start(["/bin/sh", "-euc", TRY, name, *self._config["Entrypoint"]], settings)


def is_ready(base_url: str) -> bool:
    try:
        with urlopen(f"{base_url}/readyz", timeout=5):
            return True
    except HTTPError as refused:
        print(refused.read().decode(), file=sys.stderr)  # noqa: T201
    except OSError:  # it does not listen yet
        pass
    return False


def image_of(root: str, inspected: Path) -> Image:
    return Image(root, json.loads(inspected.read_text())["OCIv1"]["config"])


def main(root: str, image: Path, images: Path, agent_root: str, agent: Path) -> int:
    sizes = {name: found["size"] for found in json.loads(images.read_text()) for name in found["names"] or ()}
    megabytes = {name.split("/")[1].split(":")[0]: _megabytes(size) for name, size in sizes.items()}
    tried = image_of(root, image)
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-image-") as folder, ExitStack() as stack:
        serve_privately(stack, Path(folder))
        database = relay_database("127.0.0.1")
        stack.callback(database.shutdown)
        port = free_port()
        base_url = f"http://127.0.0.1:{port}"
        settings = {
            "DATABASE_URL": database_url(database),
            **{name: os.environ[name] for name in ("REDIS_URL", "SECRET_KEY", "ENCRYPTION_KEYS")},
            "GRANIAN_HOST": "127.0.0.1",
            "PORT": str(port),
            "BASE_URL": base_url,
        }
        migrate = tried.start(["deploy/process", "python", "manage.py", "migrate", "-v0"], settings)
        stack.callback(migrate.kill)
        ended = {"migrate": migrate.wait(MIGRATED_SECONDS)}
        ended["agent"] = image_of(agent_root, agent).start_entry_point("--help").wait(STOPPED_SECONDS)
        running = {}
        for name in parse_procfile((ROOT / "Procfile").read_text()).processes:
            running[name] = tried.start_process(name, settings)
            stack.callback(running[name].kill)
        until(lambda: is_ready(base_url), READY_SECONDS, "/readyz answers 200")
        for process in running.values():
            assert process.stdin is not None
            process.stdin.close()
        ended |= {name: process.wait(STOPPED_SECONDS) for name, process in running.items()}
    over, agent_over = (megabytes[name] - megabytes["base"] for name in ("pulsekeeper", "pulsekeeper-agent"))
    sizes_mb = {"base_mb": megabytes["base"], "over_base_mb": over, "agent_over_base_mb": agent_over}
    print(json.dumps(sizes_mb | {"exit_statuses": ended}))  # noqa: T201
    return 0 if over <= LARGEST_MB and set(ended.values()) <= set(STOPPED) else 1


def _megabytes(size: str) -> int:
    """Return 460 for `460 MB`."""
    number, unit = size.split()
    assert unit == "MB", size
    return round(float(number))


if __name__ == "__main__":
    root, image, images, agent_root, agent = sys.argv[1:]
    sys.exit(main(root, Path(image), Path(images), agent_root, Path(agent)))
