"""A provider on loopback that does what a certified one never does: wrong claims and keys, odd documents, silence."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.accounts.browser import Browser, Page
from tests.oidc.provider import ADA, CALLBACK, CLIENT_ID, begin, come_back

SECRET = "hostile-secret-of-more-than-32-bytes"


class Hostile:
    """`claims`, `userinfo`, `discovery`: changes of the correct documents; None leaves a member out.

    `sign`: signs the ID token. `keys`: the JWKS. `bodies`: raw answers by path. `silent`: paths without
    answers.
    """

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.sign: Callable[[dict[str, Any]], Any] = lambda claims: jwt.encode(
            claims, self.key, algorithm="RS256", headers={"kid": "one"}
        )
        self.claims: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.discovery: dict[str, Any] = {}
        self.keys: Any = [self.public(self.key)]
        self.bodies: dict[str, bytes] = {}
        self.silent: set[str] = set()
        self.paths: list[str] = []
        self._over = threading.Event()
        self._asked = threading.Semaphore(0)
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.issuer = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._nonce = ""

    @staticmethod
    def public(key: Any, **changes: Any) -> dict[str, Any]:
        algorithm: Any = jwt.algorithms.RSAAlgorithm
        if isinstance(key, ec.EllipticCurvePrivateKey):
            algorithm = jwt.algorithms.ECAlgorithm
        return {
            **algorithm.to_jwk(key.public_key(), as_dict=True),
            "kid": "one",
            "use": "sig",
            "alg": "RS256",
        } | changes

    def configure(self, settings: Any) -> None:
        settings.OIDC_ISSUER, settings.OIDC_NAME = self.issuer, "Acme"
        settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET = CLIENT_ID, SECRET

    def arrive(self, browser: Browser, **fields: str) -> Page:
        """Begin, and come back with a code as if the person had consented."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(begin(browser, **fields)).query).items()}
        self._nonce = query.get("nonce", "")
        return come_back(browser, f"{CALLBACK}?{urlencode({'code': 'any', 'state': query['state']})}")

    def wait_until_asked(self) -> None:
        assert self._asked.acquire(timeout=10)

    def documents(self) -> dict[str, Any]:
        now = int(time.time())
        person = {**ADA, "groups": ["dev"]}
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 60, "nonce": self._nonce, **person}
        discovery = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/auth",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "userinfo_endpoint": f"{self.issuer}/me",
        }
        token = self.sign(_changed(claims, self.claims))
        return {
            "/.well-known/openid-configuration": _changed(discovery, self.discovery),
            "/jwks": {"keys": self.keys},
            "/token": {"access_token": "access", "token_type": "Bearer", "id_token": token},
            "/me": _changed(person, self.userinfo),
        }

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hostile = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hostile.paths.append(self.path)
                if self.path in hostile.silent:
                    hostile._asked.release()
                    hostile._over.wait()
                    return
                body = hostile.bodies.get(self.path) or json.dumps(hostile.documents()[self.path]).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *args: Any) -> None:
                """Quiet."""

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


def _changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (document | changes).items() if value is not None}
