"""The form and the page of port, udp, ping and dns monitors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client
from pytest_django.fixtures import Settings

from accounts.models import User
from checks.probes.ping.rights import may_ping
from checks.spec import RuleType
from core.egress import parse_networks
from dashboard.monitors.forms import MonitorForm
from monitors import configuration, types
from monitors.checking.runner import drain, shared_engine
from monitors.models import Monitor
from projects.access import Caller
from tests.dashboard.test_monitor_pages import _text, created, errors_in, tried, typed, worker
from tests.factories import MonitorFactory, UserFactory
from tests.helpers import flush_broker
from tests.targets.certificates import Certificates
from tests.targets.datagrams import Datagrams
from tests.targets.resolvers import saying
from tests.targets.server import Listen, TargetServer, Unasked, answer

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
    """Each field is sent as the page shows it; only the fields that the type requires are filled in."""
    shown = MonitorForm(caller=Caller(user), config=configuration.build({"interval_sec": 300}))
    data: dict[str, Any] = {"form_key": "a-key"}
    for field in (*shown, *(field for rows in shown.rows.values() for row in rows for field in row)):
        widget, value = field.field.widget, field.value()
        if getattr(widget, "input_type", "") == "select":
            offered = [str(key) for key, _ in widget.choices]
            value = value if str(value) in offered else offered[0]  # as browsers preselect
        if value not in (None, False):
            data[field.html_name] = value if isinstance(value, (tuple, list)) else str(value)
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
    """Submitting unchanged values would overwrite a concurrent change by another member."""
    stored = Monitor.objects.get(pk=MonitorFactory(owner=user, **given).pk)

    def form(data: QueryDict | None = None) -> MonitorForm:
        return MonitorForm(data, caller=Caller(user), config=stored.full_config, stored=stored)

    shown, data = form(), QueryDict(mutable=True)
    fields = [shown[name] for name in shown.fields if name not in shown.rows]
    for field in (*fields, *(field for rows in shown.rows.values() for row in rows for field in row)):
        value = field.value()
        if isinstance(value, (tuple, list)):
            data.setlist(field.html_name, list(value))
        elif value is not None and value is not False:
            data[field.html_name] = re.sub(r"\r?\n", "\r\n", str(value))
    sent = form(data)
    assert sent.is_valid(), sent.errors
    assert sent.body() == {}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (PORT | {"url": ""}, "Host: Is required for a monitor of type port."),
        (PORT | {"url": "https://mail.example/"}, "Host: Must begin with tcp:// or tls://"),
        (PORT | {"url": "tcp://mail.example"}, "Port: Must be a number from 1 to 65535."),
        (PORT | {"url": "mail.example", "port": "0"}, "Port: "),
        (PORT | {"url": "mail.example", "port": "smtp"}, "Port: "),
        (PORT | {"url": "mail.example", "port": "25", "encryption": "ssh"}, "Encryption: "),
        (PORT | {"url": "tcp://10.0.0.1:25"}, "Host: Is a private or reserved address"),
        (PORT | {"rule-0-kind": "json_exists", "rule-0-path": "a"}, "Rule: "),
        (PORT | {"request_body": "xyz", "request_body_encoding": "hex"}, "Body: Is not hex, for example 0d0a."),
        (PORT | {"request_body": "xyz", "request_body_encoding": "rot13"}, "Encoding of the body: "),
        (UDP | {"request_body": "x" * 513}, "Body: Must be at most 512 bytes"),
        (PING | {"url": "icmp://router.example:7"}, "Host: Cannot contain a port"),
        (PING | {"packets": "11"}, "Packets: "),
        (PING | {"packets": ""}, "Packets: This field is required."),
        (PING | {"packets": "3"}, "Replies needed: Must be at most packets, which is 3."),
        (DNS | {"url": "dns:shop.example?type=ANY"}, "Domain name: Must ask for one of these types"),
        (DNS | {"url": "shop.example", "record_type": "ANY"}, "Record type: "),
        (DNS | {"url": "shop.example", "resolver": "ns1.example"}, "Resolver: Must be an IP address"),
        (DNS | {"url": "dns://127.0.0.1/shop.example"}, "Domain name: Names a private or reserved address"),
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


@pytest.mark.parametrize(
    ("given", "url", "name"),
    [
        ({"type": "port", "url": ' "db.example:22" '}, "tcp://db.example:22", "db.example"),
        (
            {"type": "port", "url": "10.0.0.5", "port": "25", "encryption": "smtp"},
            "tls://10.0.0.5:25?starttls=smtp",
            "10.0.0.5",
        ),
        ({"type": "udp", "url": "game.example", "port": "27015"}, "udp://game.example:27015", "game.example"),
        ({"type": "ping", "url": " 10.0.0.5 "}, "icmp://10.0.0.5", "10.0.0.5"),
        ({"type": "dns", "url": "shop.example", "record_type": "MX"}, "dns:shop.example?type=MX", "shop.example MX"),
        (
            {"type": "dns", "url": "shop.example", "resolver": "1.1.1.1"},
            "dns://1.1.1.1/shop.example?type=A",
            "shop.example A",
        ),
    ],
)
def test_an_address_is_made_of_host_and_other_fields(
    web: Client, user: User, settings: Settings, given: dict[str, str], url: str, name: str
) -> None:
    settings.ALLOWED_PRIVATE_NETWORKS = parse_networks("10.0.0.0/8")
    given = PORT | PING | DNS | given
    answer = web.post("/monitors/new", typed() | given, follow=True)
    page = answer.content.decode()
    assert errors_in(page) == []
    monitor = created(user)
    assert (monitor.url, monitor.name) == (url, name)
    assert (f"The address was completed to {url}." in page) == (":22" in url), "only what was typed otherwise"
    edit = web.get(f"/monitors/{monitor.public_id}/edit").content.decode()
    assert f'<code id="address">{url}</code>' in edit
    assert url not in re.sub(r'<code id="address">.*?</code>', "", edit), "the fields have the parts"


def test_a_refused_form_shows_the_address_that_was_made(web: Client) -> None:
    given = PORT | {"url": "db.example:22", "packets": "", "timeout_ms": "often"}
    page = web.post("/monitors/new", typed() | given).content.decode()
    assert [error.partition(":")[0] for error in errors_in(page)] == ["Timeout"]
    assert '<code id="address">tcp://db.example:22</code>' in page


def test_a_stored_address_stays_as_it_is_spelt(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user, type="dns", url="DNS:Shop.example")
    given = {"url": "Shop.example", "record_type": "A", "name": "Renamed"}
    answer = web.post(f"/monitors/{monitor.public_id}/edit", typed() | DNS | given)
    assert answer.status_code == 302, errors_in(answer.content.decode())
    monitor.refresh_from_db()
    assert (monitor.name, monitor.url, monitor.config_version) == ("Renamed", "DNS:Shop.example", 1)


@pytest.mark.usefixtures("worker")
def test_https_is_tried_first(client: Client, targets: TargetServer, tmp_path: Path) -> None:
    user = UserFactory()
    client.force_login(user)
    plain = targets.serve(Unasked([Listen(), answer(400)]))
    encrypted = targets.serve([answer()], tls=Certificates(tmp_path).self_signed())
    for site, url in ((plain, f"http://127.0.0.1:{plain.port}"), (encrypted, f"https://127.0.0.1:{encrypted.port}/x")):
        given = typed(url=url.partition("//")[2], form_key=url)
        tested = tried(client, "/monitors/new", given).content.decode()
        completed = f"The address was completed to {url}."
        assert f'data-completed="{url}"' in tested
        assert completed in tested
        page = client.post("/monitors/new", given, follow=True).content.decode()
        assert errors_in(page) == []
        assert Monitor.objects.filter(owner=user, url=url).exists(), site
        assert (f"{completed} https:// did not respond." in page) == (site is plain)
    monitor = Monitor.objects.get(url__startswith="http:")
    path = f"/monitors/{monitor.public_id}/edit"
    client.post(path, typed(url=f"127.0.0.1:{encrypted.port}/x", name="Moved"))
    assert Monitor.objects.get(pk=monitor.pk).url == f"https://127.0.0.1:{encrypted.port}/x"
    drain(grace_sec=0)


@pytest.fixture
def no_private_networks(settings: Settings) -> Iterator[None]:
    settings.ALLOWED_PRIVATE_NETWORKS = ()
    drain(grace_sec=0)  # an earlier test may have left a runner, with an engine that has the networks that were allowed
    shared_engine.cache_clear()
    yield
    drain(grace_sec=0)
    shared_engine.cache_clear()


@pytest.mark.usefixtures("no_private_networks", "worker")
def test_a_name_of_a_blocked_address_is_completed_to_https(client: Client) -> None:
    """The target was not contacted, so the page must not say that it did not respond."""
    client.force_login(UserFactory())
    page = tried(client, "/monitors/new", typed(url="localhost")).content.decode()
    assert 'data-completed="https://localhost"' in page
    assert "did not respond" not in page


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("no_worker")
def test_without_a_worker_the_scheme_has_to_be_typed(client: Client) -> None:
    client.force_login(UserFactory())
    page = client.post("/monitors/new", typed(url="shop.example/x")).content.decode()
    assert errors_in(page) == ["Address: Could not be tested for https; enter it with https:// or http://."]
    assert 'value="shop.example/x"' in page
    assert not Monitor.objects.exists()


def test_a_question_for_https_counts_as_a_test(web: Client, settings: Settings) -> None:
    flush_broker()
    settings.THROTTLE_SCALE = 1
    settings.THROTTLES = settings.THROTTLES | {"create-and-test": (1, 60)}
    assert web.post("/monitors/new", typed()).status_code == 302
    page = web.post("/monitors/new", typed(url="shop.example", form_key="b")).content.decode()
    assert errors_in(page) == ["Too many requests; try again later."]


def _spans(page: str, marker: str) -> dict[str, str]:
    """The alternatives of a help text, by type."""
    part = page.partition(marker)[2].partition("</div>")[0]
    found = re.findall(r'<span data-for="([a-z ]+)">(.*?)</span>', part)
    return {kind: text for kinds, text in found for kind in kinds.split()}


def test_the_form_fits_the_type(web: Client) -> None:
    page = web.get("/monitors/new?type=port").content.decode()
    assert 'placeholder="db.example"' in page
    helps = _spans(page, 'id="id_url_helptext"')
    assert set(helps) == {name for name, kind in types.REGISTRY.items() if "url" in kind.asked}
    assert helps["http"].startswith("http:// or https://")
    assert helps["port"] == "A name or an IP address."
    assert helps["dns"] == "The name to look up."
    rules = re.findall(r'<option value="(\w+)"( selected)?( data-for="[a-z ]+")?>', page.partition('id="rules"')[2])
    with_json = [name for name, kind in types.REGISTRY.items() if RuleType.JSON_FIELD in kind.rule_types]
    for_json = f' data-for="{" ".join(with_json)}"'
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

    assert re.fullmatch(r"Up Done after \d+ ms Address \S+ Datagrams sent 1 Reply 4 bytes .* pong", run(udp))
    assert run(udp | {"rule-0-value": "absent"}).startswith("Down The reply ")
    assert run(dns | {"records": "10 mail.shop.example"}).startswith("Up ")
    assert "20 mail.shop.example" in run(dns | {"records": "20 mail.shop.example"})
    site = targets.serve([answer()])
    port = {"type": "port", "url": f"tcp://127.0.0.1:{site.port}"}
    assert re.match(r"Up Connected after \d+ ms Done after \d+ ms", run(port))
    question = {"request_body": b"GET / HTTP/1.0\r\n\r\n".hex(), "request_body_encoding": "hex"}
    talk = port | question | {"rule-0-value": b" 200 ".hex()}
    assert re.match(r"Up Connected after \d+ ms First byte after \d+ ms Done after \d+ ms", run(talk))
    if may_ping():
        ping = run({"type": "ping", "url": "icmp://127.0.0.1", "packets": "2", "min_replies": "2"})
        assert re.match(r"Up Done after \d+ ms", ping)
    drain(grace_sec=0)
