"""Run the commands of docs/operate on a new Debian, in order, as an operator who follows the pages does.

    python -m tests.faults.walkthrough [FOLDER] [--pages NAME …]

Blocks under a line `<!-- tried -->` are run by one root shell, which stops at the first error. `before: COMMAND` and
`after: COMMAND` in that line prepare and verify what the commands do. With `host: second` the second host runs them,
with `host: each` first the one, then the other. There each block has a separate shell, in the checkout.

Each host is a new Debian, an overlay over one folder that debootstrap made, kept for the next run. They have a private
network without other hosts. A third address has the files of the second host. All three accept SSH of root. There is
no systemd, so a script is `systemctl`. A transcript of each page goes to FOLDER (default: none is kept). All pages need
what `deployment` does.

It needs Debian 12, root, `debootstrap`, `git`, `iproute2`, `openssh-client` and `python3`. The last line is one JSON
object: the blocks of each page that passed, and the failed page with the end of its transcript. The exit code is 1 if
one failed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

from tests.faults.hosts import NamespaceHost, Network, isolated
from tests.faults.virtualenv import KEPT, ROOT

PAGES = ("deployment", "hardening", "observability", "metrics", "operations", "upgrade", "backup")
NETWORK = Network("hosts", 1)
FIRST, SECOND, THIRD = (NamespaceHost(name, 11 + at, [NETWORK]) for at, name in enumerate(("first", "second", "third")))
# Packages of the operator's machine in addition to Debian's essential ones. The pages install everything else.
PRESENT = ("git", "openssh-client", "openssh-server", "procps", "tzdata")
# Downloaded, so that the pages can install them without a network.
PACKAGES = ("curl", "nftables", "nginx", "openssl", "postgresql", "prometheus", "python3-venv", "redis-server")
APT = """APT::Get::Assume-Yes "true";
APT::Install-Recommends "false";
DPkg::Options { "--force-unsafe-io"; };
"""
_BLOCK = re.compile(
    r"^ *<!-- tried(?:; host: (?P<host>second|each))?(?:; before: (?P<before>.+?))?(?:; after: (?P<after>.+?))? -->\n"
    r" *```sh\n(?P<commands>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
# Replaces systemd for Debian's services and the units of deploy/systemd, without a sandbox.
SYSTEMCTL = r"""#!/bin/sh
set -eu

stop() {
    pid=$(cat "/run/$1.pid" 2>/dev/null) || return 0
    kill -TERM "$pid" 2>/dev/null || return 0
    for attempt in $(seq 400); do
        kill -0 "$pid" 2>/dev/null || return 0
        sleep 0.2
    done
    echo "systemctl: $1 did not stop in 80 s" >&2
    tail -n 20 "/var/log/$1.log" >&2
    exit 1
}

start() {
    install -d -o pulsekeeper "/var/lib/pulsekeeper/$1" "/run/credentials/$1"
    install -o pulsekeeper -m 400 /etc/pulsekeeper/secrets/* "/run/credentials/$1"
    (
        cd /opt/pulsekeeper/current
        set -a
        eval "$(sed -n "s,%i,$1,g; s,%d,/run/credentials/$1,g; s/^Environment=//p" \
            /etc/systemd/system/pulsekeeper@.service)"
        . /etc/pulsekeeper/environment
        exec setsid setpriv --reuid=pulsekeeper --regid=pulsekeeper --clear-groups deploy/process "$1"
    ) >>"/var/log/$1.log" 2>&1 </dev/null 9>&- &
    echo $! >"/run/$1.pid"
}

names() { # a name, or a pattern of what was started before
    case $1 in
    *\**) cd /var/lib/pulsekeeper 2>/dev/null && find . -mindepth 1 -maxdepth 1 -name "$1" -printf '%f\n' ;;
    *) echo "$1" ;;
    esac
}

case $* in
daemon-reload) exit ;;
enable\ --now*) shift && action=start ;;
*) action=$1 ;;
esac
shift
for unit; do
    case $unit in
    nftables) nft -f /etc/nftables.conf && continue || exit 1 ;;
    pulsekeeper.target) pattern='*' ;;
    pulsekeeper@*) pattern=${unit#pulsekeeper@} ;;
    *) service "$unit" "$action" && continue || exit 1 ;;
    esac
    for name in $(names "$pattern"); do
        [ "$action" = start ] || stop "$name"
        [ "$action" = stop ] || start "$name"
    done
done
"""
NEW_VERSION = """#!/bin/sh
# Commit a version with one more migration.
set -eu
cd /srv/checkout
last=$(ls audit/migrations/0*.py | tail -n 1 | xargs basename -s .py)
cat >audit/migrations/9999_walkthrough.py <<EOF
from django.db import migrations

class Migration(migrations.Migration):
    dependencies = [("audit", "$last")]
EOF
git add .
git -c user.name=walkthrough -c user.email=walkthrough@example.com commit --quiet --message=walkthrough
"""
VERIFY = f"""#!/bin/sh
# On the second host: fail unless the servers accept it, securely, and refuse {THIRD.address}, and unless it
# makes checks alone.
set -eu
verify() {{ # the part, and a shell
    python="from tests.faults import second_host; second_host.verify_$1()"
    shift
    "$@" "/opt/pulsekeeper/current/deploy/manage shell --command '$python'"
}}
verify connections sh -c
verify refusals ssh {THIRD.address}
ssh {FIRST.address} systemctl stop pulsekeeper.target
verify checks sh -c
ssh {FIRST.address} systemctl start pulsekeeper.target
"""


@dataclass(frozen=True)
class Block:
    """Commands of a page, the host that runs them, and what it does before and after them."""

    commands: str
    host: str
    before: str
    after: str

    @property
    def script(self) -> str:
        own = f"{self.before}\n{self.commands}{self.after}\n"
        other = f"ssh {SECOND.address} 'cd /srv/checkout && bash -eo pipefail -xc \"$(cat)\"' <<'END'\n{own}END\n"
        return {"first": own, "second": other, "each": own + other}[self.host] + ": passed\n"


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the blocks of a page that are marked as tried."""
    for found in _BLOCK.finditer(page):
        yield Block(dedent(found["commands"]), found["host"] or "first", found["before"] or "", found["after"] or "")


def script_of(pages: dict[str, list[Block]]) -> str:
    """Return the shell script of all pages. It writes a transcript for each."""
    parts = []
    for name, blocks in pages.items():
        parts.append(f"exec >/transcripts/{name}.txt 2>&1\n")
        parts += [block.script for block in blocks]
    return "cd /srv/checkout\n" + "".join(parts)


def new_debian() -> Path:
    """Return a folder with a new Debian and the wheels of the production lock. Needs Debian's and a package index."""
    lock = ROOT / "requirements" / "production.txt"
    wanted = " ".join((*PRESENT, *PACKAGES))
    made = KEPT / "walkthrough" / hashlib.sha256(wanted.encode() + lock.read_bytes()).hexdigest()[:16]
    if not (made / "complete").exists():
        shutil.rmtree(made.parent, ignore_errors=True)
        made.mkdir(parents=True)
        root = made / "root"
        _run("debootstrap", "--variant=minbase", f"--include={','.join(PRESENT)}", "bookworm", str(root))
        (root / "etc/apt/apt.conf.d/walkthrough").write_text(APT)
        _run("chroot", str(root), "apt-get", "update")
        _run("chroot", str(root), "apt-get", "install", "--download-only", *PACKAGES)
        # By Debian's Python, whose version decides which packages it needs.
        pip = (sys.executable, "-m", "pip", "--python", "/usr/bin/python3")
        download = ("download", "--quiet", "--only-binary=:all:", "--require-hashes", "--dest", str(root / "wheels"))
        _run(*pip, *download, "--requirement", str(lock))
        (made / "complete").touch()
    return made / "root"


def enter(debian: Path, folder: Path) -> Path:
    """Return the root of a machine: an overlay over `debian` that is removed with the namespace."""
    for name in ("upper", "work", "root"):
        (folder / name).mkdir(parents=True)
    root = folder / "root"
    layers = f"lowerdir={debian},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    _run("mount", "-t", "overlay", "overlay", "-o", layers, str(root))
    for name in ("proc", "sys", "dev"):
        _run("mount", "--rbind", f"/{name}", str(root / name))
    for name, text in {"systemctl": SYSTEMCTL, "new-version": NEW_VERSION, "verify-hosts": VERIFY}.items():
        (root / "usr/local/sbin" / name).write_text(text)
        (root / "usr/local/sbin" / name).chmod(0o755)
    # Packages start their services, as on a machine with systemd.
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\n")
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    (root / "etc/pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    (root / "transcripts").mkdir()
    _run("git", "clone", "--quiet", f"file://{ROOT}", str(root / "srv/checkout"))
    return root


def connect(hosts: Sequence[tuple[NamespaceHost, Path]], folder: Path) -> None:
    """Connect the hosts, and let root of each sign in to the others."""
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "id_ed25519"))
    (folder / "config").write_text("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n")
    (folder / "authorized_keys").write_bytes((folder / "id_ed25519.pub").read_bytes())
    for root in {root for _, root in hosts}:
        (root / "run/sshd").mkdir()
        (root / "root/.ssh").mkdir(mode=0o700)
        for name in ("id_ed25519", "config", "authorized_keys"):
            shutil.copy(folder / name, root / "root/.ssh")
    NETWORK.power_on()
    for host, root in hosts:
        host.power_on()
        _run(*host.command("root"), "chroot", str(root), "/usr/sbin/sshd", "-o", "PidFile=none")


def main(kept: Path | None, names: Sequence[str]) -> int:
    pages = {name: list(blocks_of((ROOT / "docs/operate" / f"{name}.md").read_text())) for name in names}
    folder = Path("/run/walkthrough")  # in memory, and of this namespace
    root, second = (enter(new_debian(), folder / host.name) for host in (FIRST, SECOND))
    connect([(FIRST, root), (SECOND, second), (THIRD, second)], folder)
    (root / "walk.sh").write_text(script_of(pages))
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    environment["DEBIAN_FRONTEND"] = "noninteractive"
    bash = (*FIRST.command("root"), "chroot", str(root), "bash", "-e", "-o", "pipefail", "-v", "/walk.sh")
    shell = subprocess.Popen(bash, env=environment)
    # The first process of a namespace reaps all others, or scripts wait for servers that have ended.
    while (ended := os.wait())[0] != shell.pid:
        pass
    failed = os.waitstatus_to_exitcode(ended[1]) != 0
    transcripts = {name: root / "transcripts" / f"{name}.txt" for name in pages}
    texts = {name: path.read_text(errors="replace") for name, path in transcripts.items() if path.exists()}
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        for page, text in texts.items():
            (kept / f"{page}.txt").write_text(text)
    passed = {page: text.count(": passed\n") for page, text in texts.items()}  # also after output without a line break
    result: dict[str, object] = {"passed": passed, "failed": None}
    if failed:
        result |= {"failed": list(texts)[-1], "end": list(texts.values())[-1][-2000:]}
    print(json.dumps(result))  # noqa: T201
    return int(failed)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"error: {' '.join(command[:4])} …: {(done.stderr or done.stdout).strip()[-2000:]}")


if __name__ == "__main__":
    if shutil.which("debootstrap") is None:
        raise SystemExit("error: debootstrap is not installed: apt-get install debootstrap")
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--pages", nargs="+", choices=PAGES, default=PAGES, metavar="NAME")
    given = parser.parse_args()
    new_debian()  # now: the namespaces reach no package index
    isolated("tests.faults.walkthrough")
    sys.exit(main(given.folder, given.pages))
