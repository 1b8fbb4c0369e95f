"""The form and the page of port, udp, ping and dns monitors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.models import User
from checks.probes.ping.rights import may_ping
from checks.spec import RuleType
from dashboard.monitors.forms import MonitorForm
from monitors import configuration, types
from monitors.models import Monitor
from monitors.probing.prober import drain
from projects.access import Caller
from tests.dashboard.test_monitor_pages import _text, created, errors_in, tried, typed, worker
from tests.factories import MonitorFactory, UserFactory
from tests.targets.datagrams import Datagrams
from tests.targets.resolvers import saying
from tests.targets.server import TargetServer, answer

__all__ = ["worker"]  # a fixture

PORT = {"type": "port", "url": "tls://mail.example:25?starttls=smtp", "request_body_encoding": "text"}
UDP = {"type": "udp", "url": "udp://[2606:4700::1111]:53", "request_body_encoding": "text"}
PING = {"type": "ping", "url": "icmp://router.example", "packets": "5", "min_replies": "4"}
DNS = {"type": "dns", "url": "dns://1.1.1.1/Shop.example?type=MX"}


@pytest.fixture
def targets() -> Iterator[TargetServer]:
    with TargetServer() as server:
        yield server


@pytest.mark.parametrize(
    ("given", "name", "options"),
    [
        (
            PORT | {"request_body": "00 ff", "request_body_encoding": "hex", "rule-0-value": "32", "check_ssl": "on"},
            "mail.example",
            {"request_body": "00 ff", "request_body_encoding": "hex"},
        ),
        (UDP | {"request_body": "ping"}, "2606:4700::1111", {"request_body": "ping", "request_body_encoding": "text"}),
        (PING | {"rule-0-value": "hidden"}, "router.example", {"packets": 5, "min_replies": 4}),
        (
            DNS | {"records": "10 mail.shop.example\r\n\r\n 20 other.shop.example "},
            "shop.example MX",
            {"records": ["10 mail.shop.example", " 20 other.shop.example "]},
        ),
        (
            DNS | {"records": "", "rule-1-kind": "absent", "rule-1-value": "parking"},
            "shop.example MX",
            {"records": None},
        ),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) and "type" in value else None,
)
def test_each_type_is_made(web: Client, user: User, given: dict[str, str], name: str, options: dict[str, Any]) -> None:
    answer = web.post("/monitors/new", typed() | given)
    assert errors_in(answer.content.decode()) == []
    monitor = created(user)
    assert (monitor.name, monitor.type, monitor.url) == (name, given["type"], given["url"])
    assert {name: monitor.options[name] for name in options} == options
    edited = web.post(f"/monitors/{monitor.public_id}/edit", typed(name="Renamed") | given)
    assert errors_in(edited.content.decode()) == []
    monitor.refresh_from_db()
    assert (monitor.name, monitor.config_version) == ("Renamed", 1), "nothing else has changed"


@pytest.mark.parametrize("kind", types.names())
def test_a_monitor_of_each_type_is_made_from_the_defaults_of_the_form(web: Client, user: User, kind: str) -> None:
    """Each field is sent as the page shows it, and only what the type requires is typed."""
    shown = MonitorForm(caller=Caller(user), config=configuration.build({"interval_sec": 300}))
    data = {"form_key": "a-key"}
    for field in (*shown, *(field for rows in shown.rows.values() for row in rows for field in row)):
        widget, value = field.field.widget, field.value()
        if getattr(widget, "input_type", "") == "select":
            offered = [str(key) for key, _ in widget.choices]
            value = value if str(value) in offered else offered[0]  # as browsers choose
        if value not in (None, False):
            data[field.html_name] = str(value)
    data["type"] = kind
    if "url" in types.get(kind).asked:
        data["url"] = types.get(kind).example
    if types.get(kind).required_rules:
        is_json = types.get(kind).first_rule is RuleType.JSON_FIELD
        data |= {"rule-0-kind": "json_exists", "rule-0-path": "a"} if is_json else {"rule-0-value": "ok"}
    answer = web.post("/monitors/new", data)
    assert errors_in(answer.content.decode()) == []
    assert created(user).type == kind


@pytest.mark.parametrize(
    "given",
    [
        {"type": "http", "url": "https://shop.example/"},
        {
            "type": "http",
            "url": "https://shop.example/",
            "method": "POST",
            "request_body": '{\r\n  "a": 1\r\n}',
            "content_rules": [{"type": "text_contains", "value": " ok "}],
            "request_headers": [{"name": "Authorization", "value": "s3cret", "type": "bearer"}, {"name": "X-Empty"}],
        },
        {
            "type": "keyword",
            "url": "https://shop.example/",
            "content_rules": [{"type": "text_absent", "value": "error"}],
        },
        {
            "type": "api",
            "url": "https://shop.example/",
            "content_rules": [{"type": "json_field", "path": "a", "equals": ""}, {"type": "json_field", "path": "b"}],
        },
        {"type": "heartbeat", "grace_sec": 90},
        {"type": "scheduler", "url": "https://shop.example/", "request_body": "x"},
        {"type": "port", "url": "tcp://db.example:1", "content_rules": [{"type": "text_absent", "value": "x"}]},
        {"type": "udp", "url": "udp://db.example:1", "request_body": "0d 0a", "request_body_encoding": "hex"},
        {"type": "ping", "url": "icmp://db.example", "packets": 5, "min_replies": 4},
        {"type": "dns", "url": "dns:db.example?type=TXT", "records": [" led", "trailed ", '"quoted "']},
        {"type": "dns", "url": "dns:db.example", "content_rules": [{"type": "text_contains", "value": "192"}]},
    ],
    ids=lambda given: given["type"],
)
def test_an_unchanged_form_sends_nothing(user: User, given: dict[str, Any]) -> None:
    """Values that nobody changed would overwrite what somebody else has changed meanwhile."""
    stored = Monitor.objects.get(pk=MonitorFactory(owner=user, **given).pk)

    def form(data: QueryDict | None = None) -> MonitorForm:
        return MonitorForm(data, caller=Caller(user), config=stored.full_config, stored=stored)

    shown, data = form(), QueryDict(mutable=True)
    fields = [shown[name] for name in shown.fields if name not in shown.rows]
    for field in (*fields, *(field for rows in shown.rows.values() for row in rows for field in row)):
        value = field.value()
        if value is not None and value is not False:
            data[field.html_name] = re.sub(r"\r?\n", "\r\n", str(value))
    sent = form(data)
    assert sent.is_valid(), sent.errors
    assert sent.body() == {}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (PORT | {"url": ""}, "Address: Is required for a monitor of type port."),
        (PORT | {"url": "https://mail.example/"}, "Address: Must begin with tcp:// or tls://"),
        (PORT | {"url": "tcp://mail.example"}, "Address: Must name a port"),
        (PORT | {"url": "tcp://10.0.0.1:25"}, "Address: Is a private or reserved address"),
        (PORT | {"rule-0-kind": "json_exists", "rule-0-path": "a"}, "Rule: "),
        (PORT | {"request_body": "xyz", "request_body_encoding": "hex"}, "Body: Is not hex, for example 0d0a."),
        (PORT | {"request_body": "xyz", "request_body_encoding": "rot13"}, "Encoding of the body: "),
        (UDP | {"request_body": "x" * 513}, "Body: Must be at most 512 bytes"),
        (PING | {"url": "icmp://router.example:7"}, "Address: Cannot contain a port"),
        (PING | {"packets": "11"}, "Packets: "),
        (PING | {"packets": ""}, "Packets: This is needed."),
        (PING | {"packets": "3"}, "Replies needed: Must be at most packets, which is 3."),
        (DNS | {"url": "dns:shop.example?type=ANY"}, "Address: Must ask for one of these types"),
        (DNS | {"url": "dns://127.0.0.1/shop.example"}, "Address: Names a private or reserved address"),
        (DNS | {"records": "\r\n10 mail.example\r\n \r\nnonsense"}, "Expected records: Line 4 "),
        (DNS | {"records": "\r\n".join(f"{n} mail.example" for n in range(17))}, "Expected records: "),
    ],
    ids=str,
)
def test_bad_input_is_shown_beside_its_field(
    web: Client, settings: Settings, given: dict[str, str], problem: str
) -> None:
    settings.ALLOWED_PRIVATE_NETWORKS = ()
    page = web.post("/monitors/new", typed() | given).content.decode()
    (shown,) = errors_in(page)
    assert shown.startswith(problem)
    assert page.count('class="errorlist"') == 1
    assert not Monitor.objects.exists()


def _spans(page: str, marker: str) -> dict[str, str]:
    """The alternatives of a help text, by type."""
    part = page.partition(marker)[2].partition("</div>")[0]
    found = re.findall(r'<span data-for="([a-z ]+)">(.*?)</span>', part)
    return {kind: text for kinds, text in found for kind in kinds.split()}


def test_the_form_fits_the_type(web: Client) -> None:
    page = web.get("/monitors/new?type=port").content.decode()
    assert 'placeholder="tcp://db.example:5432"' in page
    helps = _spans(page, 'id="id_url_helptext"')
    assert set(helps) == {name for name, kind in types.REGISTRY.items() if "url" in kind.asked}
    assert [helps[name].partition("//")[0] for name in ("http", "port", "udp", "ping")] == [
        "http:", "tcp:", "udp:", "icmp:",
    ]  # fmt: skip
    assert helps["dns"].startswith("dns:")
    rules = re.findall(r'<option value="(\w+)"( selected)?( data-for="[a-z ]+")?>', page.partition('id="rules"')[2])
    for_json = ' data-for="http keyword api heartbeat scheduler"'
    kinds = {"contains": "", "absent": "", "json_equals": for_json, "json_exists": for_json}
    assert {kind: shown for kind, _, shown in rules if kind in kinds} == kinds
    encodings = page.partition('name="request_body_encoding"')[2].partition("</select>")[0]
    assert re.findall(r'value="(\w*)"', encodings) == ["text", "hex", "base64"], "the same default for all types"
    section = re.search(r'id="rules" data-for="([a-z ]+)"', page)
    assert section is not None
    assert "ping" not in section[1].split()


def test_the_page_of_a_monitor_says_how_to_reproduce_its_check(web: Client, user: User) -> None:
    for given, tool, shown in (
        ({"type": "port", "url": "tcp://db.example:5432"}, "nc", ""),
        ({"type": "port", "url": "tls://db.example:5432"}, "openssl", ""),
        ({"type": "udp", "url": "udp://db.example:53"}, "python3", ""),
        ({"type": "ping", "url": "icmp://db.example", "packets": 7}, "ping", "<dt>Packets</dt><dd>7</dd>"),
        (
            {"type": "dns", "url": "dns:db.example", "records": ["192.0.2.1", "192.0.2.2"]},
            "dig",
            "<dt>Expected records</dt><dd>192.0.2.1<br>192.0.2.2</dd>",
        ),
    ):
        monitor = MonitorFactory(owner=user, **given)
        page = web.get(f"/monitors/{monitor.public_id}").content.decode()
        assert f"Reproduce with {tool}</h2>" in page
        assert shown in page
        assert monitor.url in page
        assert f'href="{monitor.url}"' not in page, "no browser opens it"
    page = web.get(f"/monitors/{MonitorFactory(owner=user).public_id}").content.decode()
    assert "Reproduce with curl</h2>" in page
    assert 'href="http' in page


@pytest.mark.parametrize("kind", ["http", "port", "udp", "ping", "dns"])
def test_a_stored_address_that_no_longer_parses_has_a_page(web: Client, user: User, kind: str) -> None:
    monitor = MonitorFactory(owner=user, type=kind, url=types.get(kind).example)
    Monitor.objects.update(url="other:address")
    page = web.get(f"/monitors/{monitor.public_id}")
    assert page.status_code == 200
    assert ("Reproduce with" in page.content.decode()) == (kind == "http")
    assert web.get(f"/monitors/{monitor.public_id}/edit").status_code == 200


@pytest.mark.usefixtures("worker")
def test_each_type_can_be_tested(client: Client, targets: TargetServer) -> None:
    client.force_login(UserFactory())
    host = "127.44.0.1"
    service = targets.serve_datagrams(Datagrams([[b"pong"]]), host=host)
    server = targets.serve_resolver(saying(("shop.example.", "MX", "10 mail.shop.example.")))
    udp = {"type": "udp", "url": f"udp://{host}:{service.port}", "timeout_ms": "3s"}
    dns = {"type": "dns", "url": f"dns://127.0.0.1:{server.port}/shop.example?type=MX"}

    def run(given: dict[str, str]) -> str:
        return " ".join(_text(tried(client, "/monitors/new", typed() | given).content.decode()).split())

    assert re.fullmatch(r"Up Done after \d+ ms", run(udp))
    assert run(udp | {"rule-0-value": "absent"}).startswith("Down The reply ")
    assert run(dns | {"records": "10 mail.shop.example"}).startswith("Up ")
    assert "20 mail.shop.example" in run(dns | {"records": "20 mail.shop.example"})
    site = targets.serve([answer()])
    port = {"type": "port", "url": f"tcp://127.0.0.1:{site.port}"}
    assert re.fullmatch(r"Up Connected after \d+ ms Done after \d+ ms", run(port))
    question = {"request_body": b"GET / HTTP/1.0\r\n\r\n".hex(), "request_body_encoding": "hex"}
    talk = port | question | {"rule-0-value": b" 200 ".hex()}
    assert re.fullmatch(r"Up Connected after \d+ ms First byte after \d+ ms Done after \d+ ms", run(talk))
    if may_ping():
        ping = run({"type": "ping", "url": "icmp://127.0.0.1", "packets": "2", "min_replies": "2"})
        assert re.fullmatch(r"Up Done after \d+ ms", ping)
    drain(grace_sec=0)
