"""Measure what the most expensive requests cost that strangers and tenants can send.

    python benchmarks/strangers.py [--quick] [--top N] [--only TEXT]

With granian as in the Procfile on private servers in a temporary folder, and an account that stores as much as it may
(`straining.account`). One request at a time: every route and field of openapi.json at its limits and what schemathesis
makes of it (`straining.api`), pages and forms (`straining.pages`), and the gateway's own protocol
(`straining.protocol`). Throttles are off, and no worker runs: requests that wait for one wait no time.

CPU is that of the web process, memory what the request allocated at its peak. The most expensive inputs are sent again,
and their smallest figure counts. PostgreSQL's CPU is a figure of its own. `EXCEPTIONS` names what may cost more, and
the queue or limit that bounds how much of it runs at the same time.

The last line is one JSON object: `anonymous_cpu_ms`, `anonymous_mib`, `tenant_cpu_ms`, `tenant_mib` (each of the most
expensive input outside EXCEPTIONS) and `inputs`. Exits 1 if one exceeds its limit.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import requests
from honcho.environ import parse_procfile

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.serving import ROOT, Serving, serving
from benchmarks.straining import api, pages, protocol
from benchmarks.straining.measuring import Cost, Input, Meter

LIMITS = {"anonymous": (50.0, 2.0), "tenant": (250.0, 8.0)}
"""CPU in ms and memory in MiB of a request."""
EXCEPTIONS = {
    "passwords": (
        r"password\w*: |^post /v1/sessions |^post /account/\S+ (unchanged|login: |code: )",
        "core/shares.py: two at once, in turns by client and account",
    ),
    "images": (r"/logo ", "statuspages/logos.py: one process of the decoder at a time"),
    "manifests": (r"^(get|put) /v1/manifest|^post /v1/imports", "manifests/views.py: one at a time for each account"),
    "exports": (r"^get /v1/account/export", "signin/account_export.py: one at a time for each account"),
    "drafts": (r"^post /v1/monitors/test|^post /v1/monitors ", "core/waiting.py: a few for each account"),
    "long lists": (
        r"^get /v1/(monitors|metrics|alert-channels|maintenance-windows|status-pages|incidents|status-\S+/notes)( |$)",
        "core/api/query.py: LONG_LISTS",
    ),
    "pages of a full account": (
        r"^get /(monitors|maintenance/\S+|status-pages/\S+|incidents/\S+)( |$)|^post /monitors/actions ",
        "config/shares.py: four requests at once, two of a client",
    ),
    "escaped forms": (
        r"^post /.* (one escaped name|\S+: nested comments)$",
        "config/shares.py: four requests at once, two of a client",
    ),
}
"""By name: a pattern of inputs that may cost more, and the limit of how many run at the same time."""
AGAIN = 5
SAME = 5
"""Inputs of one operation among the most expensive ones."""
VARIABLES = {
    "THROTTLE_SCALE": "0",
    "SIGN_UP": "true",
    "VERCEL_API_URL": "http://127.0.0.1:9",  # refuses connections
    "NETLIFY_API_URL": "http://127.0.0.1:9",
}


@dataclass(frozen=True, slots=True)
class Row:
    given: Input
    cost: Cost
    mib: float

    @property
    def exception(self) -> str | None:
        return exception(self.given)


def exception(given: Input) -> str | None:
    return next((name for name, (pattern, _) in EXCEPTIONS.items() if re.search(pattern, given.name)), None)


def all_inputs(served: Serving, names: dict[str, Any], *, quick: bool) -> Iterator[Input]:
    document = json.loads((ROOT / "docs/openapi.json").read_text())
    full, roomy = names["full"], names["roomy"]
    patterns = served.python("-m", "benchmarks.straining.routes").splitlines()
    yield from protocol.inputs(full["slug"])
    yield from api.public(document, api.Sender("anonymous", full, None))
    stranger = pages.Browser("anonymous", full, None)
    anywhere = [*pages.public_addresses(full), *pages.addresses(patterns, full)]
    yield from pages.looks(stranger, anywhere)
    yield from _forms(served, stranger, anywhere)
    for tenant in (full, roomy):
        sender = api.Sender("tenant", tenant, tenant["session"])
        yield from api.reads(document, sender)
    yield from api.reads(document, api.Sender("tenant", full, full["token"]))
    yield from pages.looks(pages.Browser("tenant", full, full["cookie"]), pages.addresses(patterns, full))
    yield from api.agent(api.Sender("tenant", roomy, roomy["agent_credential"]))
    yield from api.strategies(document, api.Sender("tenant", roomy, roomy["session"]), count=1 if quick else 4)
    yield from api.writes(document, api.Sender("tenant", roomy, roomy["session"]))
    yield from _forms(served, pages.Browser("tenant", roomy, roomy["cookie"]), pages.addresses(patterns, roomy))
    for tenant in (roomy, full):
        yield from api.deletions(document, api.Sender("tenant", tenant, tenant["session"]))


def _forms(served: Serving, browser: pages.Browser, paths: list[str]) -> Iterator[Input]:
    """Read each page, and yield the inputs of its forms. A form of many pages is sent once."""
    seen: set[str] = set()
    cookie = dict(part.split("=") for part in browser.cookie.split("; "))
    for path in paths:
        html = requests.get(served.address + path, cookies=cookie, timeout=60, allow_redirects=False).text
        for given in pages.forms(browser, path, html):
            if given.name not in seen:
                seen.add(given.name)
                yield given


def measure(
    meter: Meter, inputs: Iterable[Input], *, top: int, only: str, report: Callable[[str], None]
) -> tuple[list[Row], int]:
    """Send all inputs once, and the most expensive ones of each caller again. Return these, and how many were sent."""
    costs: dict[str, list[tuple[Input, Cost]]] = {who: [] for who in LIMITS}
    sent = 0
    for given in inputs:
        if only not in given.name:
            continue
        costs[given.who].append((given, meter.cost(given)))
        sent += 1
        if len(costs[given.who]) > 10 * top:
            costs[given.who] = _dearest(costs[given.who], top)
        if sent % 2_000 == 0:
            report(f"{sent} inputs, the last: {given.who} {given.name[:80]}")
    return [_again(meter, *found) for who in LIMITS for found in _dearest(costs[who], top)], sent


def _dearest(costs: list[tuple[Input, Cost]], top: int) -> list[tuple[Input, Cost]]:
    """Return the most expensive inputs by each figure, at most a few of each operation. Exceptions take no places."""
    kept: dict[str, tuple[Input, Cost]] = {}
    for figure in map(attrgetter, ("cpu_ms", "grown_mib", "database_ms")):
        of_operation: Counter[str] = Counter()
        taken: Counter[bool] = Counter()
        for given, cost in sorted(costs, key=lambda found: -figure(found[1])):
            operation = " ".join(given.name.split()[:2])
            excepted = exception(given) is not None
            if of_operation[operation] < SAME and taken[excepted] < top:
                of_operation[operation] += 1
                taken[excepted] += 1
                kept[given.name] = (given, cost)
    return list(kept.values())


def _again(meter: Meter, given: Input, first: Cost) -> Row:
    costs = [first]
    started = time.monotonic()
    while len(costs) < AGAIN and time.monotonic() - started < 10:
        costs.append(meter.cost(given))
    smallest = replace(
        costs[-1], cpu_ms=min(cost.cpu_ms for cost in costs), database_ms=min(cost.database_ms for cost in costs)
    )
    return Row(given, smallest, meter.memory_mib(given))


def summary(rows: list[Row]) -> dict[str, float]:
    """Return the figures of the most expensive inputs outside EXCEPTIONS."""
    found: dict[str, float] = {}
    for who in LIMITS:
        counted = [row for row in rows if row.given.who == who and row.exception is None]
        found[f"{who}_cpu_ms"] = round(max((row.cost.cpu_ms for row in counted), default=0), 1)
        found[f"{who}_mib"] = round(max((row.mib for row in counted), default=0), 2)
    return found


def table(rows: list[Row], *, top: int) -> Iterator[str]:
    yield f"{'caller':9} {'cpu ms':>7} {'MiB':>6} {'db ms':>6} {'status':>6} {'bytes':>9}  input"
    for who in LIMITS:
        own = [row for row in rows if row.given.who == who]
        shown = sorted(own, key=lambda row: -row.cost.cpu_ms)[:top] + sorted(own, key=lambda row: -row.mib)[:top]
        for row in dict.fromkeys(shown):
            cost, mark = row.cost, f"  [{row.exception}]" if row.exception else ""
            yield (
                f"{who:9} {cost.cpu_ms:7.1f} {row.mib:6.2f} {cost.database_ms:6.1f} {cost.status:6}"
                f" {cost.answer_bytes:9}  {row.given.name[:110]}{mark}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small account and few inputs, to try the benchmark")
    parser.add_argument("--top", type=int, default=60, help="how many of the most expensive inputs are sent again")
    parser.add_argument("--only", default="", help="inputs with this text in their name")
    options = parser.parse_args()
    web = parse_procfile((ROOT / "Procfile").read_text()).processes["web"]
    command = web.replace("config.rsgi:application", "benchmarks.straining.traced:application")
    with serving(VARIABLES, command=command) as served:
        names = fill(served, quick=options.quick)
        meter = Meter(served.address, web_pid=served.web_pid, postgres_pid=served.server_pid("postgres"))
        inputs: Iterable[Input] = all_inputs(served, names, quick=options.quick)
        if options.quick:
            inputs = (given for number, given in enumerate(inputs) if number % 50 == 0)
        rows, sent = measure(meter, inputs, top=options.top, only=options.only, report=_print)
    for line in table(rows, top=options.top):
        print(line)
    found = summary(rows)
    print(json.dumps(found | {"inputs": sent}))
    limits = [limit for who in LIMITS for limit in LIMITS[who]]
    return 0 if all(figure <= limit for figure, limit in zip(found.values(), limits, strict=True)) else 1


def fill(served: Serving, *, quick: bool) -> dict[str, Any]:
    out = served.python("-m", "benchmarks.straining.account", *(["--small"] if quick else []))
    names: dict[str, Any] = json.loads(out.splitlines()[-1])
    return names


def _print(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
