"""Vercel and Netlify as servers on loopback, as strict as their documentation.

    with FakeVercel(redirect_uri=f"{BASE_URL}/connectors/vercel/callback") as vercel:
        vercel.configure(settings)                 # pytest-django's: addresses and keys
        callback = vercel.consent(authorize_url)   # what the browser is sent back to
        vercel.projects = [project(1, domain="shop.example"), project(2, address=None)]
        vercel.mode = "500"                        # see Mode; "" works normally
        vercel.revoke()                            # rejects all tokens issued so far

`issued`: every code and token issued, to search for in output; `calls`: the path of every request received.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Literal, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import requests

# "down" hangs up, "slow" answers when the mode is over, "wrong_json" is truncated, "wrong_types" is JSON of another
# shape. All apply to requests of Pulsekeeper; the consent page works.
Mode = Literal["", "down", "slow", "429", "500", "wrong_json", "wrong_types"]

_PAGE = b"<!doctype html><title>Consent</title><form method=post><button name=decision value=allow>Allow</button>"
_ADDRESS = "from the name"


@dataclass(frozen=True)
class FakeProject:
    """`address`: the one assigned by the provider, None for a project that was never deployed."""

    ref: str
    name: str
    address: str | None
    domain: str | None


def project(number: int, *, address: str | None = _ADDRESS, domain: str | None = None) -> FakeProject:
    """`domain`: a custom one. `address`: the host under the provider's domain, by default derived from the name."""
    name = f"project-{number}"
    return FakeProject(f"prj_{number}", name, f"{name}.fake" if address == _ADDRESS else address, domain)


def projects(count: int) -> list[FakeProject]:
    return [project(number) for number in range(1, count + 1)]


@dataclass(frozen=True)
class _Code:
    redirect_uri: str
    challenge: str | None


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: Mapping[str, str]


class Refused(Exception):
    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status, body)
        self.answer = Answer(status, body, {})


def invalid(error: str, description: str, *, status: int = 400) -> Refused:
    return Refused(status, {"error": error, "error_description": description})


class Fake:
    """`redirect_uri`: the one registered with the app. `account`: the owner of the tokens.

    `odd`: raw items that its lists return before those of `projects`. `endless`: the last page links to another.
    """

    NAME: ClassVar[str]
    AUTHORIZE_PATH: ClassVar[str]
    TOKEN_PATH: ClassVar[str]
    unauthorized: tuple[int, Any]
    """Status and body of the answer to an unknown token."""

    def __init__(self, *, redirect_uri: str, account: str = "Ada Lovelace") -> None:
        self.redirect_uri = redirect_uri
        self.account = account
        self.client_id = "pulsekeeper-client"
        self.client_secret = "pulsekeeper-secret-" + secrets.token_hex(8)
        self.projects: list[FakeProject] = projects(3)
        self.odd: list[Any] = []
        self.endless = False
        self.denies = False
        self.issued: list[str] = []
        self.calls: list[str] = []
        self._mode: Mode = ""
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._refused = threading.Condition()
        self._refusals = 0
        self._codes: dict[str, _Code] = {}
        self._tokens: set[str] = set()
        self._server = _serve(self)
        self.url = self.api_url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def mode(self) -> Mode:
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._over.set()
        self._over = threading.Event()
        self._mode = mode

    def configure(self, settings: Any) -> None:
        name = self.NAME.upper()
        setattr(settings, f"{name}_URL", self.url)
        setattr(settings, f"{name}_API_URL", self.api_url)
        setattr(settings, f"{name}_CLIENT_ID", self.client_id)
        setattr(settings, f"{name}_CLIENT_SECRET", self.client_secret)

    def consent(self, authorize_url: str) -> str:
        """Open the page, press its button (or refuse, if `denies`), and return the URL it redirects to."""
        decision = "deny" if self.denies else "allow"
        with requests.Session() as browser:
            browser.trust_env = False
            page = browser.get(authorize_url, timeout=5)
            assert page.status_code == 200, page.text
            back = browser.post(authorize_url, {"decision": decision}, timeout=5, allow_redirects=False)
            assert back.status_code == 302, back.text
            return back.headers["Location"]

    def revoke(self) -> None:
        with self._lock:
            self._tokens.clear()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    # Behaviour of the server, by the methods of a provider.

    def new_secret(self, prefix: str) -> str:
        secret = f"{prefix}_{secrets.token_urlsafe(24)}"
        self.issued.append(secret)
        return secret

    def check_authorize(self, query: Mapping[str, str]) -> str:
        """Return the redirect URI. Raises Refused, whose page does not redirect."""
        raise NotImplementedError

    def granted(self) -> dict[str, str]:
        """Return what the redirect has in addition to code and state."""
        return {}

    def token_answer(self) -> dict[str, Any]:
        raise NotImplementedError

    def listed(self, path: str, query: Mapping[str, str]) -> Answer:
        raise NotImplementedError

    def authorize(self, query: Mapping[str, str], *, decision: str) -> str:
        back = self.check_authorize(query)
        state = {"state": query["state"]} if "state" in query else {}
        if decision != "allow":
            return f"{back}?{urlencode({'error': 'access_denied', **state})}"
        code = self.new_secret("code")
        with self._lock:
            self._codes[code] = _Code(back, query.get("code_challenge"))
        return f"{back}?{urlencode({'code': code, **state, **self.granted()})}"

    def exchange(self, form: Mapping[str, str]) -> dict[str, Any]:
        if form.get("client_id") != self.client_id:
            raise invalid("invalid_client", "Client authentication failed", status=401)
        if not secrets.compare_digest(form.get("client_secret", ""), self.client_secret):
            raise invalid("invalid_client", "Client authentication failed", status=401)
        return self.grant(form)

    def grant(self, form: Mapping[str, str]) -> dict[str, Any]:
        with self._lock:
            code = self._codes.pop(form.get("code", ""), None)  # even if it is refused: a code works once
        if code is None:
            raise invalid("invalid_grant", "authorization code is invalid")
        if form.get("redirect_uri") != code.redirect_uri:
            raise invalid("invalid_grant", "redirect_uri does not match")
        if code.challenge is not None:
            digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
            if base64.urlsafe_b64encode(digest).decode().rstrip("=") != code.challenge:
                raise invalid("invalid_grant", "code_verifier does not match")
        return self.token_answer()

    def new_token(self) -> str:
        token = self.new_secret("access")
        with self._lock:
            self._tokens.add(token)
        return token

    def check_token(self, header: str | None) -> None:
        scheme, _, token = (header or "").partition(" ")
        with self._lock:
            known = token in self._tokens
        if scheme != "Bearer" or not known:
            with self._refused:
                self._refusals += 1
                self._refused.notify_all()
            raise Refused(*self.unauthorized)


class FakeVercel(Fake):
    """An integration: it always redirects to its registered address and ignores the one in the request.

    `team` is (id, name) of the team it gets installed on, None for a personal account. The API serves the
    scope of the installation only: `teamId` must be that of the team, and absent without one. `forbidden` are paths
    that the integration has no permission for; `disabled` is an integration whose owner has left.
    """

    NAME = "vercel"
    TOKEN_PATH = "/v2/oauth/access_token"
    AUTHORIZE_PATH = "/integrations/pulsekeeper/new"

    def __init__(
        self, *, redirect_uri: str, account: str = "Ada Lovelace", team: tuple[str, str] | None = None
    ) -> None:
        super().__init__(redirect_uri=redirect_uri, account=account)
        forbidden = {"code": "forbidden", "message": "Not authorized", "invalidToken": True}
        self.unauthorized = 403, {"error": forbidden}
        self.team = team
        self.forbidden: set[str] = set()
        self.disabled = False

    def configure(self, settings: Any) -> None:
        super().configure(settings)
        settings.VERCEL_SLUG = "pulsekeeper"

    def check_authorize(self, query: Mapping[str, str]) -> str:
        return self.redirect_uri

    def granted(self) -> dict[str, str]:
        team = {} if self.team is None else {"teamId": self.team[0]}
        return {"configurationId": "icfg_1", "next": f"{self.url}/next", "source": "external", **team}

    def token_answer(self) -> dict[str, Any]:
        return {
            "token_type": "Bearer",
            "access_token": self.new_token(),
            "installation_id": "icfg_1",
            "user_id": "user_1",
            "team_id": None if self.team is None else self.team[0],
        }

    def listed(self, path: str, query: Mapping[str, str]) -> Answer:
        team_id, team_name = self.team or (None, None)
        if self.disabled:
            code = "integration_configuration_disabled"
            raise Refused(403, {"error": {"code": code, "message": "Disabled"}})
        if path in self.forbidden:
            raise Refused(403, {"error": {"code": "forbidden", "message": "Not authorized"}})
        if path == "/v2/user" and team_id is None:
            return Answer(200, {"user": {"id": "user_1", "username": "ada", "name": self.account}}, {})
        if path == f"/v2/teams/{team_id}" and team_id is not None:
            return Answer(200, {"id": team_id, "slug": "team", "name": team_name}, {})
        if query.get("teamId") != team_id:
            raise Refused(403, {"error": {"code": "forbidden", "message": "Not authorized"}})
        if path != "/v9/projects":
            raise Refused(404, {"error": {"code": "not_found", "message": "Not Found"}})
        limit = int(query.get("limit", "20"))
        if not 1 <= limit <= 100:
            raise Refused(400, {"error": {"code": "bad_request", "message": "limit"}})
        return self._page(limit, until=int(query["until"]) if "until" in query else None)

    def _page(self, limit: int, *, until: int | None) -> Answer:
        """Newest first: the project at place n was updated at 2_000_000 - n."""
        start = 0 if until is None else 2_000_000 - until
        page = self.projects[start : start + limit]
        end = start + len(page)
        following = 2_000_000 - end if end < len(self.projects) or self.endless else None
        shown = [self._shown(listed, 2_000_000 - start - at) for at, listed in enumerate(page)]
        if start == 0:
            shown = [*self.odd, *shown]
        return Answer(200, {"projects": shown, "pagination": {"count": len(page), "next": following, "prev": None}}, {})

    def _shown(self, listed: FakeProject, updated_at: int) -> dict[str, Any]:
        if listed.address is None and listed.domain is None:
            targets: dict[str, Any] = {}
        else:
            own = [] if listed.address is None else _under(listed.address, "vercel.app")
            targets = {"production": {"alias": [*own, *filter(None, [listed.domain])], "readyState": "READY"}}
        return {"id": listed.ref, "name": listed.name, "updatedAt": updated_at, "targets": targets}


def _under(address: str, domain: str) -> list[str]:
    label = address.removesuffix(".fake")
    return [f"{label}-git-main-ada.{domain}", f"{label}.{domain}"]


class FakeNetlify(Fake):
    """An OAuth application: `redirect_uri` must be the registered one, in the request for a token too.

    `lifetime_sec`: access tokens expire and come with a refresh token. `expire()` lets them expire now. A refresh token
    works once; using it again revokes the grant. `renews_after`: how many requests must be refused before a refresh is
    answered. `on_renewal`: called before, each once.
    """

    NAME = "netlify"
    TOKEN_PATH = "/oauth/token"
    AUTHORIZE_PATH = "/authorize"

    def __init__(self, *, redirect_uri: str, account: str = "Ada Lovelace", lifetime_sec: int | None = None) -> None:
        super().__init__(redirect_uri=redirect_uri, account=account)
        self.lifetime_sec = lifetime_sec
        self.unauthorized = 401, {"code": 401, "message": "Access Denied"}
        self.renews_after = 0
        self.on_renewal: list[Callable[[], object]] = []
        self._refresh_tokens: set[str] = set()

    def expire(self) -> None:
        super().revoke()

    def revoke(self) -> None:
        super().revoke()
        with self._lock:
            self._refresh_tokens.clear()

    def check_authorize(self, query: Mapping[str, str]) -> str:
        if query.get("client_id") != self.client_id:
            raise invalid("invalid_client", "No such application", status=401)
        if query.get("response_type") != "code":
            raise invalid("unsupported_response_type", "response_type must be code")
        if query.get("redirect_uri") != self.redirect_uri:
            raise invalid("invalid_redirect_uri", "The redirect uri included is not valid.")
        if "code_challenge" in query and query.get("code_challenge_method") != "S256":
            raise invalid("invalid_request", "code_challenge_method must be S256")
        return self.redirect_uri

    def grant(self, form: Mapping[str, str]) -> dict[str, Any]:
        if form.get("grant_type") == "refresh_token":
            while self.on_renewal:
                self.on_renewal.pop()()
            with self._refused:
                self._refused.wait_for(lambda: self._refusals >= self.renews_after, timeout=10)
            with self._lock:
                known = form.get("refresh_token") in self._refresh_tokens
                self._refresh_tokens.discard(form.get("refresh_token", ""))
            if not known:
                self.revoke()
                raise invalid("invalid_grant", "The refresh token is invalid")
            return self.token_answer()
        if form.get("grant_type") != "authorization_code":
            raise invalid("unsupported_grant_type", "grant_type must be authorization_code")
        return super().grant(form)

    def token_answer(self) -> dict[str, Any]:
        answer = {"access_token": self.new_token(), "token_type": "Bearer", "created_at": 1_700_000_000}
        if self.lifetime_sec is None:
            return answer
        refresh_token = self.new_secret("refresh")
        with self._lock:
            self._refresh_tokens.add(refresh_token)
        return {**answer, "expires_in": self.lifetime_sec, "refresh_token": refresh_token}

    def listed(self, path: str, query: Mapping[str, str]) -> Answer:
        if path == "/api/v1/user":
            return Answer(200, {"id": "u1", "full_name": self.account, "email": "ada@example.com"}, {})
        if path != "/api/v1/sites":
            raise Refused(404, {"code": 404, "message": "Not Found"})
        page, size = int(query.get("page", "1")), int(query.get("per_page", "20"))
        if page < 1 or not 1 <= size <= 100:
            raise Refused(422, {"code": 422, "message": "per_page"})
        end = page * size
        shown = [self._shown(listed) for listed in self.projects[end - size : end]]
        if page == 1:
            shown = [*self.odd, *shown]
        if end >= len(self.projects) and not self.endless:
            return Answer(200, shown, {})
        following = f"{self.api_url}/api/v1/sites?{urlencode({'page': page + 1, 'per_page': size})}"
        return Answer(200, shown, {"Link": f'<{following}>; rel="next"'})

    def _shown(self, listed: FakeProject) -> dict[str, Any]:
        host = None if listed.address is None else listed.address.removesuffix(".fake") + ".netlify.app"
        return {
            "id": listed.ref,
            "name": listed.name,
            "custom_domain": listed.domain,
            "ssl_url": None if host is None else f"https://{host}",
            "url": None if host is None else f"http://{listed.domain or host}",
        }


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


def _serve(fake: Fake) -> _Server:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = _flat(parts.query)
            if parts.path == fake.AUTHORIZE_PATH:
                self._consent(query, decision=None)
                return
            fake.calls.append(parts.path)
            if self._misbehaves():
                return
            try:
                fake.check_token(self.headers["Authorization"])
                self._answer(fake.listed(parts.path, query))
            except Refused as refused:
                self._answer(refused.answer)

        def do_POST(self) -> None:
            parts = urlsplit(self.path)
            form = _flat(self.rfile.read(int(self.headers["Content-Length"])).decode())
            if parts.path == fake.AUTHORIZE_PATH:
                self._consent(_flat(parts.query), decision=form.get("decision", "deny"))
                return
            fake.calls.append(parts.path)
            if self._misbehaves():
                return
            try:
                if parts.path != fake.TOKEN_PATH:
                    raise invalid("not_found", "Not Found", status=404)
                if self.headers.get_content_type() != "application/x-www-form-urlencoded":
                    raise invalid("invalid_request", "not a form")
                self._answer(Answer(200, fake.exchange(form), {}))
            except Refused as refused:
                self._answer(refused.answer)

        def _consent(self, query: dict[str, str], *, decision: str | None) -> None:
            try:
                if decision is None:
                    fake.check_authorize(query)
                    self._send(200, _PAGE, {"Content-Type": "text/html"})
                else:
                    self._send(302, b"", {"Location": fake.authorize(query, decision=decision)})
            except Refused as refused:
                self._answer(refused.answer)

        def _misbehaves(self) -> bool:
            mode, over = fake.mode, fake._over
            if mode == "":
                return False
            if mode == "slow":
                over.wait()
            elif mode == "429":
                self._send(429, b'{"message": "slow down"}', {"Retry-After": "60"})
            elif mode == "500":
                self._send(500, b"<h1>Oops</h1>", {"Content-Type": "text/html"})
            elif mode == "wrong_json":
                self._send(200, b'{"projects": [', {"Content-Type": "application/json"})
            elif mode == "wrong_types":
                self._answer(Answer(200, {"access_token": 7, "projects": {"0": None}, "user": "x"}, {}))
            return True  # also "down": the connection ends without an answer

        def _answer(self, answer: Answer) -> None:
            headers = {"Content-Type": "application/json", **answer.headers}
            self._send(answer.status, json.dumps(answer.body).encode(), headers)

        def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Quiet."""

    return _Server(("127.0.0.1", 0), Handler)


def _flat(text: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(text, keep_blank_values=True).items()}
