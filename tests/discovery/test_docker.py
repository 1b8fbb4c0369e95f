"""Containers of a daemon on a Unix socket, over TCP and over TLS."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import trustme

from core.cli import CommandFailed, UnreachableError, UsageError
from pulsekeeper.discover.docker import endpoint_of, list_docker
from pulsekeeper.discover.labels import Listing
from tests.discovery.platforms import Docker
from tests.targets.certificates import Certificates

URL = {"pulsekeeper.url": "https://shop.example/"}


@pytest.fixture
def docker() -> Iterator[Docker]:
    with Docker() as daemon:
        yield daemon


def listed(docker: Docker, **options: bool) -> Listing:
    environment = {"DOCKER_HOST": f"tcp://127.0.0.1:{docker.port}"}
    return list_docker(**{"swarm": False, "traefik": False, **options}, environment=environment)


def test_containers_also_stopped_ones(docker: Docker) -> None:
    docker.run("web", URL)
    docker.run("old", {}, state="exited")
    listing = listed(docker)
    assert [(one.place, one.name) for one in listing.objects] == [("container web", "web"), ("container old", "old")]
    assert dict(listing.objects[0].labels) == URL
    assert docker.requests == ["/_ping", "/v1.47/containers/json?all=1"]


def test_replicas_are_one_service_with_the_labels_of_the_newest_that_runs(docker: Docker) -> None:
    compose = {"com.docker.compose.project": "shop", "com.docker.compose.service": "web"}
    docker.run("shop-web-1", {**compose, "v": "old"}, created=1)
    docker.run("shop-web-2", {**compose, "v": "new"}, created=2)
    docker.run("shop-web-3", {**compose, "v": "stopped"}, created=3, state="exited")
    docker.run("task.1", {"com.docker.swarm.service.name": "api"})
    web, api = listed(docker).objects
    assert (web.place, web.name, web.labels["v"]) == ("service shop/web", "shop/web", "new")
    assert (api.place, api.name) == ("service api", "api")


def test_routers_of_traefik(docker: Docker) -> None:
    docker.run("web", {"traefik.http.routers.r.rule": "Host(`a.example`)", "traefik.http.routers.x.rule": "Bad"})
    assert listed(docker).objects[0].addresses == []
    listing = listed(docker, traefik=True)
    assert listing.objects[0].addresses == ["http://a.example/"]
    assert listing.notes == ["container web: traefik.http.routers.x.rule: cannot be read."]


def test_services_of_a_swarm(docker: Docker) -> None:
    with pytest.raises(UsageError, match="not a manager of a swarm"):
        listed(docker, swarm=True)
    docker.services = [{"ID": "1", "Spec": {"Name": "api", "Labels": URL}}, {"ID": "2", "Spec": {"Name": "db"}}]
    assert [(one.place, dict(one.labels)) for one in listed(docker, swarm=True).objects] == [
        ("service api", URL),
        ("service db", {}),
    ]


def test_a_socket(tmp_path: Path) -> None:
    with Docker(unix=tmp_path / "d.sock") as daemon:
        daemon.run("web", URL)
        environment = {"DOCKER_HOST": f"unix://{tmp_path / 'd.sock'}"}
        assert len(list_docker(swarm=False, traefik=False, environment=environment).objects) == 1


def test_tls_with_a_clients_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = Certificates(tmp_path).good()
    context.load_verify_locations(cadata=authority.cert_pem.bytes().decode())
    context.verify_mode = 2  # type: ignore[assignment]  # CERT_REQUIRED
    client = authority.issue_cert("client@example.com")
    with Docker(tls=context) as daemon:
        environment = {"DOCKER_HOST": f"tcp://127.0.0.1:{daemon.port}", "DOCKER_CERT_PATH": str(tmp_path)}
        with pytest.raises(UnreachableError):  # without a certificate
            list_docker(swarm=False, traefik=False, environment=environment)
        client.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
        client.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
        assert list_docker(swarm=False, traefik=False, environment=environment).objects == []
        (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
        with pytest.raises(UnreachableError, match="certificate is not trusted"):
            list_docker(swarm=False, traefik=False, environment=environment)


@pytest.mark.parametrize(
    ("environment", "name", "socket", "port"),
    [
        ({}, "Docker at /var/run/docker.sock", "/var/run/docker.sock", 80),
        ({"DOCKER_HOST": "tcp://d.example"}, "Docker at d.example:2375", "", 2375),
        ({"DOCKER_HOST": "tcp://d.example", "DOCKER_TLS_VERIFY": "1"}, "Docker at d.example:2376", "", 2376),
    ],
)
def test_where_the_daemon_is(environment: Mapping[str, str], name: str, socket: str, port: int) -> None:
    endpoint = endpoint_of(environment)
    assert (endpoint.name, endpoint.socket_path, endpoint.port) == (name, socket, port)


@pytest.mark.parametrize("host", ["ssh://x", "npipe:////./pipe/d", "tcp://", "tcp://u:p@x", "tcp://x:999999", "x"])
def test_addresses_that_are_not_supported(host: str) -> None:
    with pytest.raises(UsageError, match="DOCKER_HOST") as failed:
        endpoint_of({"DOCKER_HOST": host})
    assert "u:p" not in str(failed.value)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK",  # no version
        b"HTTP/1.1 200 OK\r\nApi-Version: 1.12\r\nContent-Length: 2\r\n\r\nOK",
        b"HTTP/1.1 200 OK\r\nApi-Version: ../x\r\nContent-Length: 2\r\n\r\nOK",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0\r\n",
    ],
)
def test_a_daemon_that_fails(docker: Docker, broken: bytes) -> None:
    docker.broken = broken
    with pytest.raises(UnreachableError):
        listed(docker)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[]",
        b"null",
        b"{}",
        b"[1]",
        b'[{"Labels": []}]',
        b"[",
        b"[" * 9999,
    ],
)
def test_a_list_that_is_cut_short_or_malformed(docker: Docker, body: bytes) -> None:
    docker.broken = body if b"HTTP" in body else b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    environment = {"DOCKER_HOST": f"tcp://127.0.0.1:{docker.port}", "DOCKER_API_VERSION": "1.41"}
    if body == b"[]":
        assert list_docker(swarm=False, traefik=False, environment=environment).objects == []
        return
    with pytest.raises(CommandFailed):
        list_docker(swarm=False, traefik=False, environment=environment)


def test_no_daemon(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="cannot be reached"):
        list_docker(swarm=False, traefik=False, environment={"DOCKER_HOST": f"unix://{tmp_path / 'none'}"})
