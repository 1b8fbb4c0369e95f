"""Servers that answer as the documented APIs of Docker and Kubernetes do, on loopback or a Unix socket."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, Any]


class Platform:
    """A server. `requests` are the paths with queries that were asked, `broken` is what it answers instead."""

    headers: Mapping[str, str] = {}

    def __init__(self, *, unix: Path | None = None, tls: ssl.SSLContext | None = None) -> None:
        platform = self
        self.requests: list[str] = []
        self.broken: bytes | None = None

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                platform.requests.append(self.path)
                if platform.broken is not None:
                    self.wfile.write(platform.broken)
                    self.close_connection = True
                    return
                parts = urlsplit(self.path)
                query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
                status, body = platform.answer(parts.path, query, self.headers.get("Authorization", ""))
                data = json.dumps(body).encode()
                self.send_response(status)
                for name, value in {**platform.headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments: Any) -> None:
                pass

            def address_string(self) -> str:
                return "client"

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_UNIX if unix else socket.AF_INET
            allow_reuse_address = unix is None
            daemon_threads = True

            def server_bind(self) -> None:
                self.socket.bind(self.server_address)
                self.server_name, self.server_port = "localhost", 0

            def handle_error(self, *arguments: Any) -> None:
                pass  # a client that refuses the certificate

        self._server = Server(str(unix) if unix else ("127.0.0.1", 0), Handler)  # type: ignore[arg-type]
        self.port = 0 if unix else self._server.socket.getsockname()[1]
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def answer(self, path: str, query: Mapping[str, str], authorization: str) -> Answer:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Docker(Platform):
    """`containers` and `services` are those of the API. `services` is None if it does not manage a swarm."""

    headers: Mapping[str, str] = {"Api-Version": "1.47"}

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.containers: list[dict[str, Any]] = []
        self.services: list[dict[str, Any]] | None = None

    def answer(self, path: str, query: Mapping[str, str], authorization: str) -> Answer:
        match path:
            case "/_ping":
                return 200, "OK"
            case "/v1.47/containers/json":
                shown = [one for one in self.containers if query.get("all") == "1" or one["State"] == "running"]
                return 200, shown
            case "/v1.47/services":
                if self.services is None:
                    return 503, {"message": "This node is not a swarm manager."}
                return 200, self.services
        return 404, {"message": "page not found"}

    def run(self, name: str, labels: Mapping[str, str], *, state: str = "running", created: int = 1) -> None:
        one = {"Id": f"{name}0" * 8, "Names": [f"/{name}"], "State": state, "Created": created, "Labels": dict(labels)}
        self.containers.append(one)


def status(code: int, reason: str) -> Answer:
    """Return an error as Kubernetes expresses it."""
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}


@dataclass
class Objects:
    """`expired` pages answer 410, `refused` kinds 403, and kinds that are not `known` 404."""

    by_kind: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=lambda: {"services", "ingresses"})
    page: int = 2
    expired: int = 0


class Kubernetes(Platform):
    GROUPS: Mapping[str, str] = {
        "services": "/api/v1",
        "ingresses": "/apis/networking.k8s.io/v1",
        "httproutes": "/apis/gateway.networking.k8s.io/v1",
        "ingressroutes": "/apis/traefik.io/v1alpha1",
    }

    def __init__(self, *, token: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.objects = Objects()
        self._token = token

    def add(self, kind: str, namespace: str, name: str, *, spec: Any = None, **annotations: str) -> None:
        shown = {key.replace("__", "."): value for key, value in annotations.items()}
        metadata = {"name": name, "namespace": namespace} | ({"annotations": shown} if shown else {})
        self.objects.by_kind.setdefault(kind, []).append({"metadata": metadata, "spec": spec or {}})
        self.objects.known.add(kind)

    def answer(self, path: str, query: Mapping[str, str], authorization: str) -> Answer:
        if self._token and authorization != f"Bearer {self._token}":
            return status(401, "Unauthorized")
        kind = path.rpartition("/")[2]
        base = self.GROUPS.get(kind, "")
        within = path.removeprefix(f"{base}/").removesuffix(kind).strip("/").split("/")
        if kind not in self.objects.known or not path.startswith(f"{base}/"):
            return status(404, "NotFound")
        if kind in self.objects.refused:
            return status(403, "Forbidden")
        found: Sequence[dict[str, Any]] = self.objects.by_kind.get(kind, [])
        if within[0] == "namespaces":
            found = [one for one in found if one["metadata"]["namespace"] == within[1]]
        start = int(query.get("continue", 0))
        if start and self.objects.expired:
            self.objects.expired -= 1
            return status(410, "Expired")
        end = start + min(self.objects.page, int(query["limit"]))
        metadata = {"resourceVersion": "7"} | ({"continue": str(end)} if end < len(found) else {})
        return 200, {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": found[start:end]}
