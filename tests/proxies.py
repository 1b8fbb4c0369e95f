"""Run the samples of reverse proxies in deploy/ with other ports and files."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.faults.virtualenv import ROOT, programs_for

DEPLOY = ROOT / "deploy"
NAME = "pulsekeeper.example.com"
# Debian installs nginx in a folder that only root has in PATH.
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"


class Connection(http.client.HTTPSConnection):
    """Connect to an address, and verify the certificate for a name."""

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._context.wrap_socket(self.sock, server_hostname=NAME)  # type: ignore[attr-defined]


@contextmanager
def running(command: list[str], folder: Path) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env={"PATH": PATH, "HOME": str(folder)}, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield
        assert process.poll() is None
    except BaseException as error:
        error.add_note((folder / "log").read_text())
        raise
    finally:
        process.terminate()
        process.wait()


def nginx(program: str, folder: Path, *, upstreams: tuple[int, int], plain: int, secure: int) -> Any:
    """Run the sample with other ports and files, in the smallest configuration that nginx accepts."""
    site = changed(
        (DEPLOY / "nginx.conf").read_text(),
        {
            "server 127.0.0.1:8000": f"server 127.0.0.1:{upstreams[0]}",
            "server 127.0.0.1:8001": f"server 127.0.0.1:{upstreams[1]}",
            "/run/pulsekeeper": str(folder),
            "listen 80;": f"listen 127.0.0.1:{plain};",
            "listen 443 ssl": f"listen 127.0.0.1:{secure} ssl",
            "/etc/ssl/pulsekeeper": str(folder),
        },
    )
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"{'user root;' if os.geteuid() == 0 else ''} daemon off; pid {folder}/pid; error_log {folder}/log;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary}\n{site} }}\n"
    )
    return running([program, "-p", str(folder), "-e", str(folder / "log"), "-c", str(folder / "nginx.conf")], folder)


def caddy(program: str, folder: Path, *, upstreams: tuple[int, int], plain: int, secure: int) -> Any:
    """Run the sample with other ports and our certificate."""
    ports = f"http_port {plain}\nhttps_port {secure}\n"
    options = f"admin off\nstorage file_system {folder}\ndefault_bind 127.0.0.1\n{ports}"
    sample = changed(
        (DEPLOY / "Caddyfile").read_text(),
        {
            "{\n\t# Caddy": f"{{\n{options}\t# Caddy",
            "status.example.com {\n": f"status.example.com {{\ntls {folder}/certificate.pem {folder}/key.pem\n",
            "127.0.0.1:8000": f"127.0.0.1:{upstreams[0]}",
        },
    )
    (folder / "Caddyfile").write_text(sample)
    return running([program, "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"], folder)


def traefik(program: str, folder: Path, *, upstreams: tuple[int, int], plain: int, secure: int) -> Any:
    """Run the sample with another port and our certificate. Its comment is the static part of the configuration."""
    text = (DEPLOY / "traefik.yml").read_text()
    static, dynamic = yaml.safe_load("\n".join(re.findall("(?m)^#   (.*)", text))), yaml.safe_load(text)
    static["entryPoints"]["websecure"]["address"] = f"127.0.0.1:{secure}"
    # Without watching files: the kernel allows few watchers, and browsers use them too.
    static["providers"] = {"file": {"filename": str(folder / "dynamic.yml"), "watch": False}}
    for router in dynamic["http"]["routers"].values():
        router["tls"] = {}
    dynamic["http"]["services"]["pulsekeeper"]["loadBalancer"]["servers"] = [
        {"url": f"http://127.0.0.1:{port}"} for port in dict.fromkeys(upstreams)
    ]
    files = {"certFile": str(folder / "certificate.pem"), "keyFile": str(folder / "key.pem")}
    dynamic["tls"] = {"stores": {"default": {"defaultCertificate": files}}}
    for name, content in {"static": static, "dynamic": dynamic}.items():
        (folder / f"{name}.yml").write_text(yaml.safe_dump(content))
    return running([program, f"--configFile={folder / 'static.yml'}"], folder)


def find_program(name: str) -> str | None:
    """Return the path of a proxy's program, or None if it is not installed. In CI Traefik must be."""
    if name != "traefik":
        return shutil.which(name, path=PATH)
    try:
        return str(programs_for(ROOT, lock_name="deploy.txt") / name)
    except SystemExit:
        if os.environ.get("CI"):
            raise
        return None


PROXIES = {"nginx": nginx, "caddy": caddy, "traefik": traefik}


def changed(text: str, replacements: dict[str, str]) -> str:
    for old, new in replacements.items():
        assert old in text
        text = text.replace(old, new)
    return text
