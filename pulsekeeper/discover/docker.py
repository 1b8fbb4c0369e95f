"""Containers, or services of a swarm, of a Docker daemon. Podman's compatible API answers the same."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from core.cli import UnreachableError, UsageError
from pulsekeeper.discover.labels import Labelled, Listing
from pulsekeeper.discover.traefik import addresses_of_labels
from pulsekeeper.discover.transport import Endpoint, Reply, get, refused

SOCKET = "unix:///var/run/docker.sock"
OLDEST = (1, 24)
_COMPOSE = "com.docker.compose."


def endpoint_of(environment: Mapping[str, str]) -> Endpoint:
    """Return the daemon that DOCKER_HOST names. Raises UsageError."""
    host = environment.get("DOCKER_HOST") or SOCKET
    certificates = environment.get("DOCKER_CERT_PATH", "")
    verify = environment.get("DOCKER_TLS_VERIFY", "")
    try:
        parts = urlsplit(host)
        port, name = parts.port, parts.hostname or ""
    except ValueError:
        raise UsageError("DOCKER_HOST is not a valid address") from None
    if parts.scheme == "unix":
        return Endpoint(name=f"Docker at {parts.path}", socket_path=parts.path)
    if parts.scheme not in ("tcp", "http", "https") or not name or "@" in parts.netloc:
        raise UsageError("DOCKER_HOST must be unix:///path or tcp://host:port; ssh:// and npipe:// are not supported")
    tls = None
    if verify or certificates or parts.scheme == "https":
        tls = _tls(Path(certificates or Path.home() / ".docker"))
    port = port or (2375 if tls is None else 2376)
    return Endpoint(name=f"Docker at {name}:{port}", host=name, port=port, tls=tls, base=parts.path.rstrip("/"))


def _tls(folder: Path) -> ssl.SSLContext:
    """Return a context with the authority and the client's certificate of a folder, each if it is there."""
    authority, certificate, key = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
    try:
        context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
        if certificate.exists():
            context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"{folder}: the certificates cannot be read: {error.strerror or 'invalid'}") from None
    return context


def _no_password() -> str:
    raise ssl.SSLError(1, "the key has a password")


def list_docker(*, swarm: bool, traefik: bool, environment: Mapping[str, str] = os.environ) -> Listing:
    """Return the containers, also stopped ones, or the services. Raises UsageError and UnreachableError."""
    endpoint = endpoint_of(environment)
    version = _version(endpoint, environment)
    path = "/services" if swarm else "/containers/json"
    # A stopped container still has its monitor, which reports it.
    reply = get(endpoint, f"/v{version}{path}", None if swarm else {"all": "1"})
    if swarm and reply.status in (406, 503):
        raise UsageError(f"{endpoint.name} is not a manager of a swarm; leave --swarm out, or ask a manager")
    if reply.status != 200 or not isinstance(reply.body, list):
        raise refused(endpoint, path, reply)
    listing = Listing()
    newest: dict[str, Labelled] = {}
    try:
        found = [_service(one) if swarm else _container(one) for one in sorted(reply.body, key=_rank)]
    except (KeyError, TypeError, AttributeError, IndexError):
        raise UnreachableError(f"{endpoint.name} does not answer as Docker does") from None
    for place, name, labels in found:
        if place not in newest:  # replicas of one service, or a container that is being replaced
            addresses, problems = addresses_of_labels(labels) if traefik else ([], [])
            newest[place] = Labelled(place=place, name=name, labels=labels, addresses=addresses)
            listing.notes += [f"{place}: {label}: {why}" for label, why in problems]
    listing.objects = [*newest.values()]
    return listing


def _version(endpoint: Endpoint, environment: Mapping[str, str]) -> str:
    """Return the version of the API that the daemon prefers. Raises UnreachableError."""
    version = environment.get("DOCKER_API_VERSION", "")
    if not version:
        reply: Reply = get(endpoint, "/_ping")
        version = reply.header("Api-Version")
        if reply.status != 200 or not version:
            raise refused(endpoint, "/_ping", reply)
    numbers = re.fullmatch(r"([0-9]{1,3})\.([0-9]{1,3})", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise UnreachableError(f"{endpoint.name} has a version of the API that is older than 1.24, or none")
    return version


def _rank(one: Any) -> tuple[bool, float]:
    """Sort running containers first, and then the newest."""
    created = one.get("Created", 0)
    return one.get("State") != "running", -created if isinstance(created, int | float) else 0


def _container(one: Mapping[str, Any]) -> tuple[str, str, dict[str, str]]:
    labels = _labels(one.get("Labels"))
    project, service = labels.get(f"{_COMPOSE}project"), labels.get(f"{_COMPOSE}service")
    if project and service:
        return f"service {project}/{service}", f"{project}/{service}", labels
    if swarmed := labels.get("com.docker.swarm.service.name"):
        return f"service {swarmed}", swarmed, labels
    name = str(one["Names"][0]).lstrip("/") if one.get("Names") else str(one["Id"])[:12]
    return f"container {name}", name, labels


def _service(one: Mapping[str, Any]) -> tuple[str, str, dict[str, str]]:
    name = str(one["Spec"]["Name"])
    return f"service {name}", name, _labels(one["Spec"].get("Labels"))


def _labels(given: Mapping[str, Any] | None) -> dict[str, str]:
    return {str(name): str(value) for name, value in (given or {}).items()}
