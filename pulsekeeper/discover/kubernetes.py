"""Annotated objects of a Kubernetes cluster: services, ingresses, and on request HTTPRoutes and IngressRoutes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from core.cli import UnreachableError, UsageError
from pulsekeeper.discover.labels import MAX_VALUE, Complaint, Labelled, Listing, is_own
from pulsekeeper.discover.traefik import (
    MAX_RULES,
    TOO_MANY_RULES,
    complete,
    is_encrypted,
    is_host,
    read_rule,
    usable_path,
)
from pulsekeeper.discover.transport import Endpoint, get, refused

PAGE, MAX_PAGES, MAX_STARTS = "200", 1_000, 3


@dataclass(frozen=True, slots=True)
class Kind:
    noun: str
    plural: str
    base: str


SERVICES = Kind("service", "services", "/api/v1")
INGRESSES = Kind("ingress", "ingresses", "/apis/networking.k8s.io/v1")
HTTP_ROUTES = Kind("httproute", "httproutes", "/apis/gateway.networking.k8s.io/v1")
INGRESS_ROUTES = Kind("ingressroute", "ingressroutes", "/apis/traefik.io/v1alpha1")


class _Expired(Exception):
    """The list changed too much since its first page."""


def list_kubernetes(
    endpoint: Endpoint, *, namespaces: Sequence[str], ingress: bool, httproute: bool, traefik: bool
) -> Listing:
    """Return the objects of these namespaces, or of all. Raises UsageError and UnreachableError.

    A kind that the API refuses to list, or does not have, is reported as a gap.
    """
    listing = Listing()
    derived = {INGRESSES: ingress, HTTP_ROUTES: httproute, INGRESS_ROUTES: traefik}
    for kind in (SERVICES, INGRESSES, *([HTTP_ROUTES] if httproute else []), *([INGRESS_ROUTES] if traefik else [])):
        for namespace in namespaces or [""]:
            for item in _all(endpoint, kind, namespace, listing):
                try:
                    listing.objects.append(_object(kind, item, listing, derived=derived.get(kind, False)))
                except (KeyError, TypeError, AttributeError):
                    said = f"{endpoint.name} does not answer as Kubernetes does: {kind.plural} are malformed"
                    raise UnreachableError(said) from None
    return listing


def _all(endpoint: Endpoint, kind: Kind, namespace: str, listing: Listing) -> list[Any]:
    """Return all objects, from one consistent list. Raises UsageError and UnreachableError."""
    path = f"{kind.base}/namespaces/{quote(namespace, safe='')}/{kind.plural}" if namespace else None
    path = path or f"{kind.base}/{kind.plural}"
    for _ in range(MAX_STARTS):
        try:
            return list(_pages(endpoint, path, kind, listing))
        except _Expired:
            continue
    raise UnreachableError(f"{endpoint.name}: {kind.plural} change too fast to be listed")


def _pages(endpoint: Endpoint, path: str, kind: Kind, listing: Listing) -> Iterator[Any]:
    token = ""
    for _ in range(MAX_PAGES):
        reply = get(endpoint, path, {"limit": PAGE} | ({"continue": token} if token else {}))
        if reply.status == 401:
            raise UsageError(f"{endpoint.name} does not accept the credentials")
        if reply.status == 410 and token:
            raise _Expired
        if reply.status in (403, 404) and not token:
            said = {
                403: "may not be listed (403): the account needs the verb list, see docs/use/discovery.md.",
                404: "are unknown to this cluster (404), or the namespace is.",
            }
            complaint = Complaint(kind.plural, "", said[reply.status])
            listing.complaints.append(complaint)
            listing.gaps.append(str(complaint))
            return
        body = reply.body
        if reply.status != 200:
            raise refused(endpoint, path, reply)
        if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict) or "items" not in body:
            raise UnreachableError(f"{endpoint.name} does not answer {path} as Kubernetes does")
        yield from body["items"] or []
        token = body["metadata"].get("continue") or ""
        if not token:
            return
    raise UnreachableError(f"{endpoint.name}: there are too many {kind.plural}")


def _object(kind: Kind, item: Mapping[str, Any], listing: Listing, *, derived: bool) -> Labelled:
    metadata = item["metadata"]
    namespace, name = str(metadata["namespace"]), str(metadata["name"])
    annotations = metadata.get("annotations") or {}
    # Only ours, and not whole: others may have 256 KiB, and a cluster thousands of objects.
    own = {str(key): str(value)[: MAX_VALUE + 1] for key, value in annotations.items() if is_own(str(key))}
    place = f"{kind.noun} {namespace}/{name}"
    problems: list[str] = []
    addresses = _ADDRESSES[kind.noun](item.get("spec") or {}, problems) if derived else []
    listing.notes += [f"{place}: {why}" for why in problems]
    return Labelled(
        place=place,
        name=name,
        namespace=namespace,
        labels=own,
        addresses=addresses,
    )


def _of_ingress(spec: Mapping[str, Any], problems: list[str]) -> list[str]:
    """Return one address for each host, with the path / if a rule has it, else with the shortest path."""
    paths: dict[str, list[str]] = {}
    for rule in spec.get("rules") or []:
        host = rule.get("host") or ""
        if not is_host(host):
            problems.append(f"a rule has {'a host with a wildcard' if host else 'no host'}; it is skipped.")
            continue
        given = [path.get("path") or "/" for path in (rule.get("http") or {}).get("paths") or []]
        paths.setdefault(host.lower(), []).extend(given)
    secure = [entry.get("hosts") or [] for entry in spec.get("tls") or []]
    found = []
    for host, given in paths.items():
        usable = sorted({path for text in given if (path := usable_path(text))}, key=lambda path: (len(path), path))
        names = {host, f"*.{host.partition('.')[2]}"}
        tls = any(not hosts or names & {str(one).lower() for one in hosts} for hosts in secure)
        found.append((host, usable[0] if usable else "/", tls))
    return complete(found)


def _of_http_route(spec: Mapping[str, Any], problems: list[str]) -> list[str]:
    """Return one address for each host. Listeners of the gateways say whether there is TLS: https is assumed."""
    hosts = [str(host).lower() for host in spec.get("hostnames") or []]
    if not hosts:
        problems.append("has no hostnames; it is skipped.")
    if any(not is_host(host) for host in hosts):
        problems.append("has a host with a wildcard; it is skipped.")
    matches = [match for rule in spec.get("rules") or [] for match in rule.get("matches") or [{}]]
    given = [(match.get("path") or {}) for match in matches if not match.get("headers")]
    usable = [
        path
        for one in given
        if one.get("type", "PathPrefix") != "RegularExpression" and (path := usable_path(one.get("value") or "/"))
    ]
    path = min(usable, key=lambda path: (len(path), path), default="/")
    return complete([(host, path, True) for host in hosts if is_host(host)])


def _of_ingress_route(spec: Mapping[str, Any], problems: list[str]) -> list[str]:
    points = [str(point) for point in spec.get("entryPoints") or []]
    encrypted = is_encrypted(points, tls=spec.get("tls") is not None)
    found: list[tuple[str, str, bool]] = []
    routes = list(spec.get("routes") or [])
    if len(routes) > MAX_RULES:
        problems.append(f"has {TOO_MANY_RULES}")
    for route in routes[:MAX_RULES]:
        read, problem = read_rule(str(route.get("match") or ""))
        if problem:
            problems.append(f"a rule {problem}")
        found += [(host, path, encrypted) for host, path in read]
    return complete(found)


_ADDRESSES = {"ingress": _of_ingress, "httproute": _of_http_route, "ingressroute": _of_ingress_route}
