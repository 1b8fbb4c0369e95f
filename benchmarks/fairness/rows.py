"""The attacks: one row for each resource that tenants or strangers share.

A row is a function that plays one hostile account or address until it is cancelled. `Attacker.repeat` bounds how many
of its steps run at the same time. Rows of accounts name what each account owns, which is created before the attack.
"""

from __future__ import annotations

import asyncio
import json
import random
import string
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, Literal
from urllib.parse import urlencode

from benchmarks.fairness.client import Front
from benchmarks.fairness.targets import address_of
from checks.agent_protocol import JOIN, LEASES, PROTOCOL, RESULTS

By = Literal["addresses", "accounts"]
CONNECTIONS = 4_300
BODIES, BODY_BYTES = 192, 1_500_000
DOCUMENTS = 100
HEADER_REFERENCES = 4_000
PAUSE_SEC = 0.2
"""After an answer that refuses more, so that an attacker takes little of the machine itself."""
SILENT_GRACE_SEC = 30  # gap detection looks at pings that were expected in the last minute
CSRF = "a" * 32
ESCALATED = 5
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
SLOW_EXPORT = (
    "endpoints:\n"
    + "- {name: A, url: 'https://a.example/', conditions: ['[STATUS] == 200', '[RESPONSE_TIME] < 500']}\n" * 900
)
LIMIT = 50  # monitors of the plan `free`, and channels of any


@dataclass
class Attacker:
    """An account or address. `facts` is what all share: ports of hostile targets, names of the quiet tenant."""

    front: Front
    address: str
    number: int
    of: int  # how many attackers play this row
    own: dict[str, Any]
    facts: dict[str, Any]
    counts: Counter[str] = field(default_factory=Counter)

    def share(self, total: int) -> range:
        """Return this attacker's part of `total` connections of all attackers."""
        return range(self.number, total, self.of)

    def target(self, kind: str, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.facts['ports'][kind]}{path}"

    async def ask(self, method: str, path: str, body: Any = None, *, patience: float = 30.0) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self.own['token']}"} if "token" in self.own else {}
        if cookie := self.own.get("cookie"):
            origin = f"{'https' if self.front.name else 'http'}://{self.front.host}"
            headers |= {"Cookie": f"{cookie}; csrftoken={CSRF}", "X-CSRFToken": CSRF, "Origin": origin}
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        self.counts["sent"] += 1
        status, answer = await self.front.ask(self.address, method, path, body, headers=headers, patience=patience)
        self.counts[str(status)] += 1
        if status in (0, 429, 503):
            await asyncio.sleep(PAUSE_SEC)
        return status, answer

    async def repeat(self, times: int, step: Callable[[], Awaitable[Any]], *, pause: float = 0.0) -> None:
        """Run steps without end, `times` at a time."""

        async def run() -> None:
            while True:
                await step()
                await asyncio.sleep(pause)

        await asyncio.gather(*(run() for _ in range(times)))


Play = Callable[[Attacker], Awaitable[None]]


@dataclass(frozen=True)
class Row:
    name: str
    by: By
    play: Play
    own: Mapping[str, Any]

    @property
    def resource(self) -> str:
        return (self.play.__doc__ or "").strip()


ROWS: dict[str, Row] = {}


def row(name: str, by: By, **own: Any) -> Callable[[Play], Play]:
    """Register a row. `own` is what each account owns; its functions are given the attacker's facts."""

    def add(play: Play) -> Play:
        ROWS[name] = Row(name, by, play, own)
        return play

    return add


def begin_to_read(reader: asyncio.StreamReader, size: int) -> asyncio.Future[bytes]:
    """Return the task, whose exception may go unnoticed: a write of the same connection fails too."""
    reading = asyncio.ensure_future(reader.read(size))
    reading.add_done_callback(lambda done: done.cancelled() or done.exception())
    return reading


def word() -> str:
    return "".join(random.choices(string.ascii_lowercase, k=12))


# Strangers.


@row("connections", "addresses")
async def connections(attacker: Attacker) -> None:
    """Occupy places for connections, silently or with a head sent byte by byte."""

    async def hold(number: int) -> None:
        while True:
            try:
                reader, writer = await attacker.front.connect(attacker.address, plain=True)
                attacker.counts["opened"] += 1
                slow = attacker.front.head("GET", "/", length=0) if number % 5 == 0 else b""
                reading = begin_to_read(reader, 1)
                for byte in slow:
                    if reading.done():
                        break
                    writer.write(bytes([byte]))
                    await asyncio.sleep(1)
                await reading
                writer.close()
            except OSError:
                attacker.counts["0"] += 1
            await asyncio.sleep(PAUSE_SEC)

    await asyncio.gather(*map(hold, attacker.share(CONNECTIONS)))


@row("http2", "addresses")
async def http2(attacker: Attacker) -> None:
    """The event loop: one header that is referred to thousands of times."""
    authority = attacker.front.host.encode()
    value = b"x" * 4_000
    # RFC 7541: GET, http, /, the authority without the table, a header into the table, then its index again and again.
    block = b"\x82\x86\x84\x01" + bytes([len(authority)]) + authority
    block += b"\x40\x01a\x7f\xa1\x1e" + value + b"\xbe" * HEADER_REFERENCES
    settings = bytes(3) + b"\x04\x00" + bytes(4)
    request = len(block).to_bytes(3, "big") + b"\x01\x05" + (1).to_bytes(4, "big") + block

    async def send() -> None:
        try:
            reader, writer = await attacker.front.connect(attacker.address, alpn="h2")
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + request)
            async with asyncio.timeout(30):
                attacker.counts["answered" if await reader.read(1) else "closed"] += 1
            writer.close()
        except (OSError, TimeoutError):
            attacker.counts["0"] += 1

    await attacker.repeat(2, send, pause=PAUSE_SEC)


@row("bodies", "addresses")
async def bodies(attacker: Attacker) -> None:
    """Memory of web: bodies that lack their last byte."""
    part = b"x" * 50_000
    head = attacker.front.head("POST", "/v1/sessions", length=BODY_BYTES, headers={"Content-Type": "application/json"})

    async def hold(_: int) -> None:
        while True:
            try:
                reader, writer = await attacker.front.connect(attacker.address)
                reading = begin_to_read(reader, 64)
                writer.write(head + part[1:])
                for _ in range(BODY_BYTES // len(part) - 1):
                    if reading.done():
                        break
                    writer.write(part)
                    await writer.drain()
                attacker.counts[(await reading)[9:12].decode() or "closed"] += 1
                writer.close()
            except OSError:
                attacker.counts["0"] += 1
            await asyncio.sleep(PAUSE_SEC)

    await asyncio.gather(*map(hold, attacker.share(BODIES)))


@row("openapi", "addresses")
async def openapi(attacker: Attacker) -> None:
    """Threads and CPU of web: documents that are built for each request."""
    await attacker.repeat(len(attacker.share(DOCUMENTS)), lambda: attacker.ask("GET", "/openapi.json"))


@row("pages", "addresses")
async def pages(attacker: Attacker) -> None:
    """Threads, CPU and caches of web: every other anonymous page, with queries that no cache has."""
    paths = (
        *("/account/login/", "/account/signup/", "/account/password/reset/", "/docs", "/v1/monitors", "/"),
        *(f"/status/{attacker.facts['slug']}{rest}" for rest in ("", ".json", ".atom", "/history/2026/{n}", "/{word}")),
        *("/status/{word}", "/badge/bdg_aaaaaaaaaaaaaaaaaaaaaaaaaa/{word}.svg", "/status-subscriptions/confirm/{word}"),
        *("/static/{word}.js", "/invitations/{word}", "/{word}", "/readyz", "/healthz", "/metrics"),
    )
    turn = cycle(random.sample(paths, len(paths)))

    async def read() -> None:
        path = next(turn).format(word=word(), n=random.randrange(1, 13))
        await attacker.ask("GET", f"{path}?{word()}={random.randrange(10**9)}")

    await attacker.repeat(max(1, len(attacker.share(50))), read)


@row("passwords", "addresses")
async def passwords(attacker: Attacker) -> None:
    """Password hashing: wrong passwords of accounts and of a status page."""

    async def guess() -> None:
        if random.random() < 0.5:
            await attacker.ask("POST", "/v1/sessions", {"email": f"{word()}@example.com", "password": word()})
        else:
            await attacker.ask(
                "POST", f"/status/{attacker.facts['locked']}/unlock", urlencode({"password": word()}).encode()
            )

    await attacker.repeat(20, guess)


@row("pings", "addresses")
async def pings(attacker: Attacker) -> None:
    """The path of pings: floods with bodies, of a heartbeat that exists and of others."""
    ids = (attacker.facts["heartbeat"], f"mon_{word()}")
    ways = ("", "/fail", "/start", "/log", "/1")
    body = b"x" * 10_000

    async def signal() -> None:
        path = f"/v1/heartbeats/{random.choice(ids)}/ping{random.choice(ways)}"
        await attacker.ask("POST", path, body)

    await attacker.repeat(32, signal)


@row("mails", "addresses")
async def mails(attacker: Attacker) -> None:
    """Mails and their senders: subscriptions, sign-ups and forgotten passwords of strangers."""
    email = "subscriber-{}@example.com"

    async def subscribe() -> None:
        form = urlencode({"email": email.format(word())}).encode()
        await attacker.ask("POST", f"/status/{attacker.facts['slug']}/subscribe", form)

    await attacker.repeat(8, subscribe)


# Accounts.


@row("schedules", "accounts")
async def schedules(attacker: Attacker) -> None:
    """Libraries that are called with a tenant's input: schedules that are slow to compute."""
    # The first one needs enough times to reach a clock change; others are sparse, in zones that changed by odd steps.
    hostile = cycle(
        [
            ("45 */2 * * *", "America/St_Johns", 1_289_025_060_000),
            ("59 23 29 2 */7", "Asia/Colombo", 847_045_800_000),
            ("45 */2 * * *", "Asia/Colombo", 1_145_039_400_000),
            ("*/5 */2 29 2 */6", "Australia/Lord_Howe", 1_289_025_060_000),
        ]
    )

    async def preview() -> None:
        schedule, timezone, start = next(hostile)
        query = urlencode({"schedule": schedule, "timezone": timezone, "from": start, "count": 50})
        await attacker.ask("GET", f"/v1/schedule-preview?{query}")

    await attacker.repeat(2, preview)


@row("webhooks", "accounts", channels=("hanging", LIMIT), monitors=[("http", "flapping")] * 4)
async def webhooks(attacker: Attacker) -> None:
    """Senders of alerts: as many webhooks as an account may have, and none answers."""
    await attacker.repeat(1, lambda: _check_one(attacker), pause=1.0)


@row("flapping", "accounts", channels=("fast", 3), monitors=[("http", "flapping")] * LIMIT)
async def flapping(attacker: Attacker) -> None:
    """The outbox, incidents and messages: monitors that change at each check."""
    await attacker.repeat(2, lambda: _check_one(attacker))


@row("channel-tests", "accounts", channels=("hanging", 4))
async def channel_tests(attacker: Attacker) -> None:
    """Senders of tests: receivers that hang."""
    await attacker.repeat(
        4, lambda: attacker.ask("POST", f"/v1/alert-channels/{random.choice(attacker.own['channels'])}/test")
    )


@row("drafts", "accounts")
async def drafts(attacker: Attacker) -> None:
    """Places for requests that wait: as many tests of drafts as an account may have."""
    draft = {"url": attacker.target("hanging"), "timeout_ms": 20_000}
    await attacker.repeat(8, lambda: attacker.ask("POST", "/v1/monitors/test", draft, patience=60))


@row("creations", "accounts")
async def creations(attacker: Attacker) -> None:
    """The same places, and the locks of quotas: monitors of hanging targets are created and deleted."""
    given = {"url": attacker.target("hanging"), "timeout_ms": 5_000, "name": "Created"}

    async def create() -> None:
        status, body = await attacker.ask("POST", "/v1/monitors", given, patience=60)
        if status == 201:
            await attacker.ask("DELETE", f"/v1/monitors/{json.loads(body)['id']}")

    await attacker.repeat(8, create)


@row("check-now", "accounts", monitors=[("http", "hanging")] * LIMIT)
async def check_now(attacker: Attacker) -> None:
    """The interactive workers: checks on demand of targets that hang."""
    await attacker.repeat(8, lambda: _check_one(attacker))


@row(
    "probes",
    "accounts",
    monitors=[("http", kind) for kind, _ in zip(cycle(("hanging", "huge", "json", "location", "tls")), range(LIMIT))],
)
async def probes(attacker: Attacker) -> None:
    """The probe loop and its slots: targets that hang, or answer what is slow to read."""
    await attacker.repeat(2, lambda: _check_one(attacker))


@row("udp", "accounts", monitors=[("udp", "shared"), ("udp", "shared"), ("dns", "shared")] * (LIMIT // 3))
async def udp(attacker: Attacker) -> None:
    """The seconds of an address: monitors of one that the quiet tenant monitors too."""
    await attacker.repeat(1, lambda: _check_one(attacker), pause=1.0)


@row("silence", "accounts", silent=5)
async def silence(attacker: Attacker) -> None:
    """Detection of gaps: the heartbeats of several accounts fall silent together."""
    await asyncio.Event().wait()


@row("exports", "accounts", monitors=[("http", "fast")] * LIMIT, history=500_000)
async def exports(attacker: Attacker) -> None:
    """Memory of web, and its threads: exports that are requested and not read."""
    head = attacker.front.head(
        "GET", "/v1/account/export", length=0, headers={"Authorization": f"Bearer {attacker.own['token']}"}
    )

    async def request() -> None:
        try:
            reader, writer = await attacker.front.connect(attacker.address, buffer=4_096)
            writer.write(head)
            attacker.counts[(await reader.read(64))[9:12].decode() or "closed"] += 1
            await asyncio.sleep(20)
            writer.transport.abort()
        except OSError:
            attacker.counts["0"] += 1

    await attacker.repeat(2, request, pause=PAUSE_SEC)


@row("streams", "accounts")
async def streams(attacker: Attacker) -> None:
    """Places for streams of changes: as many as are accepted, and none is read."""
    head = attacker.front.head("GET", "/changes", length=0, headers={"Cookie": attacker.own["cookie"]})

    async def follow() -> None:
        try:
            reader, writer = await attacker.front.connect(attacker.address, buffer=4_096)
            writer.write(head)
            status = (await reader.read(64))[9:12].decode() or "closed"
            attacker.counts[status] += 1
            if status == "200":
                await asyncio.sleep(20)
            writer.transport.abort()
        except OSError:
            attacker.counts["0"] += 1

    await attacker.repeat(64, follow, pause=PAUSE_SEC)


@row("agents", "accounts")
async def agents(attacker: Attacker) -> None:
    """Requests of agents: as many agents as may join, which ask without waiting, and return garbage."""
    status = 0
    while status != 201:
        status, made = await attacker.ask("POST", "/v1/locations", {"name": "Office"})
    location = json.loads(made)

    async def ask(path: str, body: Any, credential: str | None) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {credential}"} if credential else {}
        status, answer = await attacker.front.ask(attacker.address, "POST", path, body, headers=headers, patience=30.0)
        attacker.counts[str(status)] += 1
        return status, answer

    async def serve() -> None:
        _, issued = await attacker.ask("POST", f"/v1/locations/{location['id']}/join-token")
        token = json.loads(issued).get("join_token", "")
        given = {"token": token, "name": word(), "version": "1", "protocol": PROTOCOL}
        _, joined = await ask(JOIN, given, None)
        credential = json.loads(joined).get("credential")
        garbage = {"results": [{"lease": word() * 8, "verdict": "up"}] * 500}
        while credential is not None:
            await ask(LEASES, {"room": 200, "version": "1", "wait_sec": 0}, credential)
            await ask(RESULTS, garbage, credential)

    await attacker.repeat(20, serve, pause=1.0)


@row("lists", "accounts", monitors=[("http", "fast")] * LIMIT, history=100_000)
async def lists(attacker: Attacker) -> None:
    """Threads and database connections: lists, histories, backtests and metrics at their limits."""
    monitor = f"/v1/monitors/{random.choice(attacker.own['monitors'])}"
    paths = (
        *(
            "/v1/monitors",
            "/v1/incidents?limit=1000",
            "/v1/metrics",
            "/v1/account/audit-log?limit=1000",
            "/v1/manifest",
        ),
        *(f"{monitor}/checks?limit=1000", f"{monitor}/uptime?days=90", "/v1/alert-channels", "/v1/sessions"),
    )

    async def ask() -> tuple[int, bytes]:
        if random.random() < 0.1:
            return await attacker.ask("POST", f"{monitor}/backtest", {"slow_ms": random.randint(1, 5_000)})
        return await attacker.ask("GET", random.choice(paths))

    await attacker.repeat(8, ask)


@row("tags", "accounts", monitors=[("http", "fast")] * LIMIT)
async def tags(attacker: Attacker) -> None:
    """Filters and tags of long lists, and changes of all monitors of the account at once."""
    names = [f"{word}-{number}" for word in ("team", "env") for number in range(10)]
    two = urlencode([("tag", name) for name in names[:2]])

    async def ask() -> tuple[int, bytes]:
        change = {"tags": random.sample(names, len(names)), "slow_ms": random.randint(1, 5_000)}
        return await random.choice(
            (
                lambda: attacker.ask("GET", "/v1/tags"),
                lambda: attacker.ask("GET", f"/v1/monitors?{two}&state=failing&state=maintenance&q=a"),
                lambda: attacker.ask("PATCH", "/v1/monitors?enabled=true&dry_run=true", change),
                lambda: attacker.ask("PATCH", "/v1/monitors?enabled=true", change),
            )
        )()

    await attacker.repeat(8, ask)


@row("on-call", "accounts", channels=("fast", 3), monitors=[("http", "flapping")] * LIMIT)
async def on_call(attacker: Attacker) -> None:
    """Rotations, calendars and escalations: schedules at their limits, read by the year, and outages that escalate."""
    _, account = await attacker.ask("GET", "/v1/account")
    me = json.loads(account)["id"]
    now = round(time.time()) * 1_000
    hours = [
        {
            "days": [*range(1, 8)],
            "from": f"{minute // 60:02}:{minute % 60:02}",
            "to": f"{minute // 60:02}:{minute % 60 + 9:02}",
        }
        for minute in (0, 720)
    ]
    layer = {
        "user_ids": [me] * 50,
        "every": {"unit": "hour", "count": 1},
        "starts_at": now - 20 * YEAR_MS,
        "hours": hours,
    }
    overrides = [
        {"user_id": me, "starts_at": now + n * HOUR_MS, "ends_at": now + n * HOUR_MS + 60_000} for n in range(500)
    ]
    schedule = {"name": "All", "timezone": "Australia/Lord_Howe", "layers": [layer] * 10, "overrides": overrides}
    made = await _make(attacker, "/v1/on-call-schedules", schedule)
    targets = [
        {"type": "schedule", "id": made},
        *({"type": "channel", "id": each} for each in attacker.own["channels"]),
    ]
    steps = [{"after_min": 0, "targets": targets}] * 10
    policy = await _make(attacker, "/v1/escalation-policies", {"name": "All", "steps": steps, "repeat": 9})
    for monitor in attacker.own["monitors"][:ESCALATED]:  # row `tags` changes many at once
        await attacker.ask("PATCH", f"/v1/monitors/{monitor}", {"escalation_policy_id": policy})
    year = urlencode({"from": now, "to": now + 366 * 24 * HOUR_MS})
    moment = urlencode({"at": "2027-04-04T01:45", "zone": "Australia/Lord_Howe"})

    async def ask() -> None:
        await random.choice(
            (
                lambda: attacker.ask("GET", f"/v1/on-call-schedules/{made}/shifts?{year}"),
                lambda: attacker.ask("GET", f"/v1/on-call-schedules/{made}/now"),
                lambda: attacker.ask("GET", f"/on-call/schedules/{made}?view=month"),
                lambda: attacker.ask("GET", f"/on-call/policies/{policy}?{moment}"),
                lambda: attacker.ask("GET", "/on-call/shifts"),
                lambda: attacker.ask("PATCH", f"/v1/on-call-schedules/{made}", schedule),
                lambda: _check_one(attacker),
            )
        )()

    await attacker.repeat(8, ask)


async def _make(attacker: Attacker, path: str, given: Mapping[str, Any]) -> str:
    """Create it, again while it is refused, and return its id."""
    status, answer = 0, b""
    while status in (0, 429, 503):
        status, answer = await attacker.ask("POST", path, given)
    return str(json.loads(answer)["id"])


@row("imports", "accounts", signed_in=True)
async def imports(attacker: Attacker) -> None:
    """The reader of exports of other products: YAML that takes long to read."""
    form = urlencode({"source": "gatus", "project_id": "groups", "text": SLOW_EXPORT}).encode()
    await attacker.repeat(2, lambda: attacker.ask("POST", "/monitors/import", form, patience=60))


@row("locks", "accounts", monitors=[("http", "fast")] * (LIMIT // 2))
async def locks(attacker: Attacker) -> None:
    """Locks of accounts and monitors: changes of the same rows at once, and manifests."""
    names = [f"Applied {number}" for number in range(LIMIT // 2)]

    async def change() -> None:
        dice = random.random()
        if dice < 0.6:
            path = f"/v1/monitors/{random.choice(attacker.own['monitors'])}"
            await attacker.ask("PATCH", path, {"name": word()})
        elif dice < 0.8:
            await attacker.ask("POST", "/v1/monitors", {"type": "heartbeat", "name": word()})
        else:
            monitors = [{"name": name, "url": attacker.target("fast", f"/{word()}")} for name in names]
            await attacker.ask("PUT", "/v1/manifest", {"manifest": {"version": 1, "monitors": monitors}})

    await attacker.repeat(6, change)


async def _check_one(attacker: Attacker) -> None:
    await attacker.ask("POST", f"/v1/monitors/{random.choice(attacker.own['monitors'])}/checks", patience=60)


def monitor_of(kind: str, target: str, number: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return a monitor of an account in its row."""
    ports, quiet = facts["ports"], facts["quiet"]
    if kind in ("udp", "dns"):
        host = address_of(facts["shared"][kind])
        rest = f"/{number}.hostile.example" if kind == "dns" else ""
        return {"type": kind, "url": f"{kind}://{host}:{quiet[kind]}{rest}", "timeout_ms": 5_000}
    if kind == "heartbeat":
        return {"type": kind, "grace_sec": SILENT_GRACE_SEC}
    scheme, port = ("https", ports["hanging"]) if target == "tls" else ("http", ports[target])
    given: dict[str, Any] = {"url": f"{scheme}://127.0.0.1:{port}/{number}-{word()}", "timeout_ms": 10_000}
    if target == "json":
        rules = [{"type": "json_field", "path": ".".join("a" * (64 - step))} for step in range(4)]
        return given | {"type": "api", "content_rules": rules}
    return given | {"method": "GET", "fail_threshold": 1}
