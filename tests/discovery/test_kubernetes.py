"""Objects of a cluster, with the account of a pod or a kubeconfig."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from core.cli import UnreachableError, UsageError
from pulsekeeper.discover.cluster import endpoint_of
from pulsekeeper.discover.kubernetes import list_kubernetes
from pulsekeeper.discover.labels import Listing
from pulsekeeper.discover.transport import Endpoint
from tests.discovery.platforms import Kubernetes
from tests.targets.certificates import Certificates


@pytest.fixture
def cluster() -> Iterator[Kubernetes]:
    with Kubernetes() as cluster:
        yield cluster


def listed(cluster: Kubernetes, *namespaces: str, **options: bool) -> Listing:
    endpoint = Endpoint(name="the cluster", host="127.0.0.1", port=cluster.port)
    given = {"ingress": False, "httproute": False, "traefik": False, **options}
    return list_kubernetes(endpoint, namespaces=namespaces, **given)


def addresses(cluster: Kubernetes, **options: bool) -> dict[str, list[str]]:
    return {one.place: list(one.addresses) for one in listed(cluster, **options).objects}


def test_annotations_on_all_pages(cluster: Kubernetes) -> None:
    for number in range(5):
        cluster.add("services", "shop", f"s{number}", pulsekeeper__url=f"https://{number}.example/")
    cluster.add("ingresses", "blog", "i")
    listing = listed(cluster)
    assert [one.place for one in listing.objects] == [*(f"service shop/s{n}" for n in range(5)), "ingress blog/i"]
    assert dict(listing.objects[1].labels) == {"pulsekeeper.url": "https://1.example/"}
    assert {one.namespace for one in listing.objects} == {"shop", "blog"}
    assert cluster.requests[1] == "/api/v1/services?limit=200&continue=2"
    assert [one.place for one in listed(cluster, "blog").objects] == ["ingress blog/i"]
    assert cluster.requests[-1] == "/apis/networking.k8s.io/v1/namespaces/blog/ingresses?limit=200"


def test_only_our_annotations_are_kept(cluster: Kubernetes) -> None:
    """Tenants may give each object 256 KiB of annotations, and all objects are in memory."""
    cluster.add("services", "shop", "s", pulsekeeper__url="x" * 100_000, other="y" * 100_000, Pulsekeeper__name="z")
    (one,) = listed(cluster).objects
    assert {key: len(value) for key, value in one.labels.items()} == {"pulsekeeper.url": 2_049, "Pulsekeeper.name": 1}


def test_an_expired_page_starts_again(cluster: Kubernetes) -> None:
    for number in range(3):
        cluster.add("services", "shop", f"s{number}")
    cluster.objects.expired = 1
    assert [one.name for one in listed(cluster).objects] == ["s0", "s1", "s2"]
    cluster.objects.expired = 99
    with pytest.raises(UnreachableError, match="change too fast"):
        listed(cluster)


def test_a_kind_that_is_refused_is_a_gap(cluster: Kubernetes) -> None:
    cluster.add("ingresses", "shop", "i")
    cluster.objects.refused = {"services"}
    listing = listed(cluster, httproute=True)
    assert [one.name for one in listing.objects] == ["i"]
    refused, unknown = (str(complaint) for complaint in listing.complaints)
    assert "services: may not be listed (403)" in refused
    assert "httproutes: are unknown to this cluster (404)" in unknown
    assert len(listing.gaps) == 2


def test_hosts_of_ingresses(cluster: Kubernetes) -> None:
    def paths(*given: str) -> dict[str, Any]:
        return {"http": {"paths": [{"path": path, "pathType": "Prefix"} for path in given]}}

    spec = {
        "tls": [{"hosts": ["a.example", "*.wild.example"], "secretName": "x"}],
        "rules": [
            {"host": "a.example", **paths("/api", "/")},
            {"host": "b.example", **paths("/long", "/b", "/x(/|$)(.*)")},
            {"host": "www.wild.example"},
            {"host": "*.example"},
            {"http": {}},
        ],
    }
    cluster.add("ingresses", "shop", "i", spec=spec)
    cluster.add("ingresses", "shop", "all", spec={"tls": [{"secretName": "x"}], "rules": [{"host": "c.example"}]})
    assert addresses(cluster) == {"ingress shop/i": [], "ingress shop/all": []}
    assert addresses(cluster, ingress=True) == {
        "ingress shop/i": ["https://a.example/", "http://b.example/b", "https://www.wild.example/"],
        "ingress shop/all": ["https://c.example/"],
    }
    assert listed(cluster, ingress=True).notes == [
        "ingress shop/i: a rule has a host with a wildcard; it is skipped.",
        "ingress shop/i: a rule has no host; it is skipped.",
    ]


def test_routes_of_gateways_and_of_traefik(cluster: Kubernetes) -> None:
    matches = [{"path": {"type": "PathPrefix", "value": "/x"}}, {"path": {"type": "RegularExpression", "value": "/"}}]
    spec = {"hostnames": ["a.example", "*.b.example"], "rules": [{"matches": matches}]}
    cluster.add("httproutes", "shop", "r", spec=spec)
    routes = [{"match": "Host(`c.example`) && PathPrefix(`/y`)", "kind": "Rule"}, {"match": "Oops"}]
    cluster.add("ingressroutes", "shop", "t", spec={"entryPoints": ["websecure"], "routes": routes})
    assert addresses(cluster, httproute=True, traefik=True) == {
        "httproute shop/r": ["https://a.example/x"],
        "ingressroute shop/t": ["https://c.example/y"],
    }


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b'{"metadata": {}}',
        b'{"metadata": {}, "items": [1]}',
        b'{"metadata": {}, "items": [{"metadata": {}}]}',
    ],
)
def test_a_malformed_list(cluster: Kubernetes, body: bytes) -> None:
    cluster.broken = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with pytest.raises(UnreachableError, match="as Kubernetes does"):
        listed(cluster)


def test_a_server_that_fails(cluster: Kubernetes) -> None:
    cluster.broken = b"HTTP/1.1 500 Oops\r\nContent-Length: 20\r\n\r\n" + json.dumps({"message": "etcd"}).encode()
    with pytest.raises(UnreachableError):
        listed(cluster)


class Config:
    """A kubeconfig."""

    def __init__(self, folder: Path, server: str) -> None:
        self.file = folder / "config"
        self.cluster: dict[str, Any] = {"server": server}
        self.user: dict[str, Any] = {}

    def endpoint(self, **environment: str) -> Endpoint:
        root = {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": self.cluster}],
            "users": [{"name": "u", "user": self.user}],
        }
        self.file.write_text(json.dumps(root))
        return endpoint_of({"KUBECONFIG": str(self.file), **environment}, file=None, context=None)


def count(endpoint: Endpoint) -> int:
    found = list_kubernetes(endpoint, namespaces=(), ingress=False, httproute=False, traefik=False)
    return len(found.objects)


def test_a_kubeconfig_with_a_token(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with Kubernetes(token="t0ken", tls=certificates.good()) as cluster:
        cluster.add("services", "shop", "s")
        config = Config(tmp_path, f"https://127.0.0.1:{cluster.port}")
        config.user["token"] = "t0ken"
        with pytest.raises(UnreachableError, match="not trusted"):
            count(config.endpoint())
        config.cluster["certificate-authority"] = "ca.pem"  # beside the file
        assert count(config.endpoint()) == 1
        data = base64.b64encode(Path(certificates.ca_file).read_bytes()).decode()
        config.cluster = {"server": config.cluster["server"], "certificate-authority-data": data}
        assert count(config.endpoint()) == 1
        config.cluster["tls-server-name"] = "other.example"
        with pytest.raises(UnreachableError, match="not trusted"):
            count(config.endpoint())
        del config.cluster["tls-server-name"]
        config.user["token"] = "wrong"
        with pytest.raises(UsageError, match="does not accept the credentials") as failed:
            count(config.endpoint())
        assert "wrong" not in str(failed.value) + repr(config.endpoint())
        config.user = {"tokenFile": str(tmp_path / "token")}
        (tmp_path / "token").write_text("t0ken\n")
        assert count(config.endpoint()) == 1
        config.cluster = {"server": config.cluster["server"], "insecure-skip-tls-verify": True}
        assert count(config.endpoint()) == 1


def test_a_kubeconfig_with_a_clients_certificate(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificates = Certificates(tmp_path)
    context = certificates.good()
    context.load_verify_locations(cadata=authority.cert_pem.bytes().decode())
    context.verify_mode = ssl.CERT_REQUIRED
    client = authority.issue_cert("client@example.com")
    with Kubernetes(tls=context) as cluster:
        config = Config(tmp_path, f"https://127.0.0.1:{cluster.port}")
        config.cluster["certificate-authority"] = certificates.ca_file
        with pytest.raises(UnreachableError):
            count(config.endpoint())
        config.user = {
            "client-certificate-data": base64.b64encode(client.cert_chain_pems[0].bytes()).decode(),
            "client-key-data": base64.b64encode(client.private_key_pem.bytes()).decode(),
        }
        assert count(config.endpoint()) == 0
        config.user["client-key-data"] = "not base64!"
        with pytest.raises(UsageError, match="certificate or key cannot be read"):
            config.endpoint()


def test_the_account_of_a_pod(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    (tmp_path / "ca.crt").write_bytes(Path(certificates.ca_file).read_bytes())
    (tmp_path / "token").write_text("t0ken")
    with Kubernetes(token="t0ken", tls=certificates.good()) as cluster:
        cluster.add("ingresses", "shop", "s")
        pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(cluster.port)}
        assert count(endpoint_of(pod, file=None, context=None, account=tmp_path)) == 1
        with pytest.raises(UsageError, match="none"):
            endpoint_of({**pod, "KUBECONFIG": str(tmp_path / "none")}, file=None, context=None, account=tmp_path)


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        ({"server": "https://x.example"}, {"exec": {"command": "aws"}}, "exec of a user is not supported"),
        ({"server": "https://x.example"}, {"username": "u", "password": "p4ss"}, "username of a user"),
        ({"server": "https://x.example", "proxy-url": "http://p"}, {}, "proxy-url is not supported"),
        ({"server": "http://x.example"}, {"token": "t0ken"}, "only sent to https"),
        ({"server": "https://u:p4ss@x.example"}, {}, "not a valid address"),
        ({"server": "https://x.example:99999"}, {}, "not a valid address"),
        ({"server": "https://x.example", "certificate-authority": "none"}, {}, "cannot be read"),
        ({"server": "https://x.example"}, {"tokenFile": "none"}, "No such file"),
        ({"server": "https://x.example"}, {"token": "t0\nken"}, "no valid token"),
    ],
)
def test_kubeconfigs_that_are_not_supported(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], words: str
) -> None:
    config = Config(tmp_path, "")
    config.cluster, config.user = cluster, user
    with pytest.raises(UsageError, match=words) as failed:
        config.endpoint()
    assert "p4ss" not in str(failed.value)
    assert "t0" not in str(failed.value)


@pytest.mark.parametrize("text", ["", "a: [", "[]", "current-context: a", "current-context: a\ncontexts: x", "{}"])
def test_files_that_are_no_kubeconfigs(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(UsageError, match="config"):
        endpoint_of({}, file=str(tmp_path / "config"), context=None)
