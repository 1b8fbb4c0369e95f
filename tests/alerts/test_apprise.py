"""Apprise: which hosts it may reach, and that all its requests pass the egress guard."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pytest
from pytest_django import Settings

from alerts.messages import render
from alerts.transports import KINDS, apprise_plugins
from alerts.transports.apprise import BY_SCHEME, SERVICES, Service
from notifications.outbox import SendResult
from tests.alerts import documents, samples
from tests.alerts.samples import BASE_URL, DOWN, NOW, RECOVERED
from tests.processes.up import free_port
from tests.targets.certificates import Certificates
from tests.targets.server import Hang, Repeat, Script, Seen, Site, TargetServer, answer, redirect

TOKEN = "tk-4f6a0c81b2"
ROOT = Path(__file__).parents[2]


def deliver(url: str, *, name: str = "down") -> SendResult:
    return KINDS["apprise"].send({"apprise_url": url}, samples.rendered(name), key="dlv_1", now=NOW)


@pytest.fixture
def trusting(settings: Settings, certificates: Certificates) -> Certificates:
    settings.SSL_CERT_FILE = certificates.ca_file
    return certificates


def serve(targets: TargetServer, certificates: Certificates, script: Script) -> Site:
    return targets.serve(script, tls=certificates.good())


# URLs of self-hosted services, and the request address that each leads to.
OWN = [
    ("gotifys://{host}/Aa1-4f6a0c81b2.x", "/message"),
    ("ntfys://{host}/topic", "/"),
    ("mmosts://{host}/3ccdd113474722377935511fc85d3dd4", "/hooks/3ccdd113474722377935511fc85d3dd4"),
    ("goalerts://{host}/a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d", "/api/v2/generic/incoming"),
    ("hassios://{host}/long-lived-token", "/api/services/persistent_notification/create"),
    ("signals://{host}/+15555550100/+15555550101", "/v2/send"),
    ("workflows://{host}/WFID4f6a0c81b2/SIG4f6a0c81b2", "/workflows/WFID4f6a0c81b2/triggers/manual/paths/invoke"),
    (f"rockets://{'a' * 24}/{'b' * 43}@{{host}}/#room", f"/hooks/{'a' * 24}/{'b' * 43}"),
    ("synologys://{host}/token-4f6a0c81b2", "/webapi/entry.cgi"),
    ("nctalks://user:secret@{host}/room", "/ocs/v2.php/apps/spreed/api/v1/chat/room"),
    ("barks://{host}/device-key", "/push"),
    ("pushdeers://{host}/pushkey4f6a", "/message/push"),
    (
        "xmatters://api-key@{host}/a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d",
        "/api/integration/1/functions/a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d/triggers",
    ),
]


@pytest.mark.parametrize(("url", "path"), OWN, ids=[url.partition(":")[0] for url, _ in OWN])
def test_a_message_arrives(targets: TargetServer, trusting: Certificates, url: str, path: str) -> None:
    site = serve(targets, trusting, [answer(200, b"{}", "Content-Type: application/json")])
    outcome = deliver(url.format(host=f"127.0.0.1:{site.port}"))
    assert outcome.delivered, outcome
    assert outcome.detail.endswith(" accepted the message.")
    (request,) = site.seen
    assert request.method == "POST"
    assert request.path.startswith(path)
    said = unquote_plus(request.body.decode())
    assert "Shop checkout is down." in said
    assert f"{BASE_URL}/incidents/{DOWN.incident_id}" in said
    assert "apprise" not in said.lower()


def test_a_message_that_takes_several_requests_arrives(targets: TargetServer, trusting: Certificates) -> None:
    def homeserver(request: Seen) -> Script:
        if "well-known" in request.path:
            return [answer(404)]
        known = {"user_id": "@me:home.example", "room_id": "!room:home.example", "event_id": "$1"}
        return [answer(200, json.dumps(known).encode(), "Content-Type: application/json")]

    site = targets.serve(homeserver, tls=trusting.good())
    assert deliver(f"matrixs://access-token@127.0.0.1:{site.port}/!room:home.example").delivered
    assert b"Shop checkout is down." in site.seen[-1].body
    assert {request.header("authorization") for request in site.seen[1:]} == {"Bearer access-token"}


# xMatters treats a name without a dot as one below xmatters.com.
NAMED = [url for url, _ in OWN if not url.startswith("xmatters:")]


@pytest.mark.parametrize("url", NAMED, ids=[url.partition(":")[0] for url in NAMED])
def test_no_private_address_by_name(
    targets: TargetServer, trusting: Certificates, settings: Settings, url: str
) -> None:
    """A name is checked when it is resolved, which is when the socket opens."""
    settings.ALLOWED_PRIVATE_NETWORKS = ()
    site = serve(targets, trusting, [answer()])
    outcome = deliver(url.format(host=f"localhost:{site.port}"))
    assert not outcome.delivered
    assert "private or reserved" in outcome.detail
    assert site.connections == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "2130706433", "0x7f.0.0.1", "[::1]"])
def test_no_private_address_by_number(settings: Settings, host: str) -> None:
    settings.ALLOWED_PRIVATE_NETWORKS = ()
    for url, _ in OWN:
        with pytest.raises(ValueError, match=r"private or reserved|This is not a URL"):
            apprise_plugins.plugin_for(url.format(host=host))
    assert deliver(f"ntfys://{host}/topic").retry is False


@pytest.mark.parametrize(
    "url",
    [
        "json://127.0.0.1/",
        "xmls://example.com",
        "forms://example.com",
        "mailtos://u:p@example.com",
        "ntfy://example.com/topic",
        "gotify://example.com/AxxxxTOKENxxxxx",
        "matrix://u:p@example.com/#room",
        "syslog://",
        "rsyslog://127.0.0.1",
        "dbus://",
        "mqtt://127.0.0.1/topic",
        "mqtts://127.0.0.1/topic",
        "smpp://u:p@127.0.0.1/x/y",
        "growl://127.0.0.1",
        "irc://127.0.0.1/#x",
        "xmpps://u:p@example.com",
        "aprs://u:p@x",
        "windows://",
        "macosx://",
        "gnome://",
        "apprises://example.com/token",
        "file:///etc/passwd",
        "exec://id",
        "http://127.0.0.1/",
        "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ",
        "nothing",
        "://",
        "",
    ],
)
def test_a_scheme_outside_the_list_is_refused(url: str) -> None:
    for refused in (lambda: apprise_plugins.plugin_for(url), lambda: KINDS["apprise"].hint({"apprise_url": url})):
        with pytest.raises(ValueError, match="The URL must begin with the scheme of one of the services"):
            refused()
    assert deliver(url).delivered is False


SLACK = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
GOOD = [
    SLACK,
    "SLACK://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#alerts",
    "discord://417429632418316298/JHZ7lQml277CDHmQKMHI8qBe7bk2ZwO5UKjCiOAF7711o33MyqU344Qpgv7YTpadV_js",
    "tgram://123456789:AAaabbccddeeffgghhiijjkkllmmnnooppq/-1001234567890",
    "pagerduty://A1BRTD4JDTIiajkdnlazkcOXrIdevi7F@A1BRTD4JDTIiajkdnlazkcOXrIdevi7F",
    "ntfys://alerts",
    "workflows://prod-01.westeurope.logic.azure.com:443/WFID/SIG",
]
BAD = {
    "slack://x": "This is not a URL of Slack. Format: slack://{token_a}/{token_b}/{token_c}. See https://",
    "gotifys://": "This is not a URL of Gotify",
    f"{SLACK}/?template=/etc/passwd": "template: templates are not supported",
    f"{SLACK}/?template=http://169.254.169.254/": "template: templates are not supported",
    "ntfys://ntfy.example.com/topic?verify=no": "verify: certificates are always verified",
    f"{SLACK}/{'/'.join(f'%23c{n}' for n in range(50))}": "The URL names 50 receivers; the maximum is 10",
    f"{SLACK} ": "without spaces and control characters",
    f"{SLACK}\r\nHost: x": "without spaces and control characters",
    f"{SLACK}/{'x' * 3000}": "at most 2048 characters",
}


@pytest.mark.parametrize("url", GOOD)
def test_a_good_url(url: str) -> None:
    apprise_plugins.plugin_for(url)
    hint = KINDS["apprise"].hint({"apprise_url": url})
    assert hint.endswith(f"({url.partition(':')[0].lower()}://)")
    assert not any(part in hint for part in url.partition("://")[2].split("/") if part)


@pytest.mark.parametrize(("url", "said"), BAD.items(), ids=range(len(BAD)))
def test_a_bad_url(url: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        apprise_plugins.plugin_for(url)
    assert said in str(caught.value)
    assert deliver(url) == SendResult(delivered=False, detail=str(caught.value), retry=False)


def test_a_template_is_never_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the option were not rejected by its name."""
    monkeypatch.setattr(apprise_plugins, "_refuse_options", lambda _: None)
    with pytest.raises(ValueError, match="This is not a URL of Slack"):
        apprise_plugins.plugin_for(f"{SLACK}/?template=/etc/hostname")


def test_an_on_call_service_opens_and_closes_one_alert(targets: TargetServer, trusting: Certificates) -> None:
    site = serve(targets, trusting, [answer(200, b"{}")])
    url = f"goalerts://127.0.0.1:{site.port}/a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d"
    for payload in (DOWN, RECOVERED):
        message = render([payload], key="dlv_1", base_url=BASE_URL, now=NOW)
        assert KINDS["apprise"].send({"apprise_url": url}, message, key="dlv_1", now=NOW).delivered
    down, recovered = (json.loads(request.body) for request in site.seen)
    assert down["dedup"] == recovered["dedup"] == DOWN.incident_id
    assert (down.get("action"), recovered.get("action")) == (None, "close")


@pytest.mark.parametrize(
    "url", ["goalerts://{host}/a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d", "gotifys://{host}/Aa1-4f6a0c81b2.x"]
)
def test_a_name_mentions_no_user(targets: TargetServer, trusting: Certificates, url: str) -> None:
    """Neither if the service has a separate title nor if the title is part of the body."""
    site = serve(targets, trusting, [answer(200, b"{}")])
    name = "@everyone &#64;here &lt;!channel&gt; <b>x</b>"
    message = render([replace(DOWN, monitor=name)], key="dlv_1", base_url=BASE_URL, now=NOW)
    outcome = KINDS["apprise"].send(
        {"apprise_url": url.format(host=f"127.0.0.1:{site.port}")}, message, key="dlv_1", now=NOW
    )
    assert outcome.delivered
    said = json.dumps(json.loads(site.seen[0].body), ensure_ascii=False)
    assert "everyone" in said
    assert not re.search(r"@(everyone|here)|<!channel|<b>", said)


def test_what_a_url_says_goes_before_what_we_set(targets: TargetServer, trusting: Certificates) -> None:
    site = serve(targets, trusting, [answer(200, b"{}")])
    assert deliver(f"goalerts://127.0.0.1:{site.port}/a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d?dedup=mine").delivered
    assert json.loads(site.seen[0].body)["dedup"] == "mine"


def test_success_without_a_request_is_not_a_delivery() -> None:
    """Opsgenie's plugin closes only alerts that it has stored itself."""
    url = "opsgenie://a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d?action=map"
    assert deliver(url, name="recovered") == SendResult(
        delivered=False, detail="Opsgenie: nothing was sent; check the URL.", retry=False
    )


LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param([answer(500, b"oops Aa1-4f6a0c81b2.x")], 'The receiver answered 500: "oops ***".', id="500"),
        pytest.param([answer(404, b"no such hook")], 'answered 404: "no such hook".', id="404"),
        pytest.param(redirect("https://127.0.0.2/"), "The receiver answered 302.", id="redirect"),
        pytest.param([Hang()], "The receiver did not answer within 1 seconds.", id="hangs"),
        pytest.param([LONG, Repeat(b"x", 0.05)], "did not answer within 1 seconds.", id="a byte now and then"),
        pytest.param([LONG, Repeat(b"x" * 65_536)], "The receiver's answer is too long.", id="a gigabyte"),
        pytest.param([], "broke before it answered", id="closes"),
    ],
)
def test_a_receiver_gone_wrong_is_one_bounded_request(
    targets: TargetServer, trusting: Certificates, monkeypatch: pytest.MonkeyPatch, script: Script, said: str
) -> None:
    monkeypatch.setattr(apprise_plugins, "TOTAL_SEC", 1)
    site = serve(targets, trusting, script)
    start = time.monotonic()
    outcome = deliver(f"gotifys://127.0.0.1:{site.port}/Aa1-4f6a0c81b2.x?retry=5&wait=9")
    assert (outcome.delivered, outcome.retry) == (False, True)
    assert said in outcome.detail
    assert outcome.detail.startswith("Gotify: ")
    assert time.monotonic() - start < 5
    assert site.connections == 1


def test_gone_is_for_ever(targets: TargetServer, trusting: Certificates) -> None:
    site = serve(targets, trusting, [answer(410)])
    assert deliver(f"gotifys://127.0.0.1:{site.port}/Aa1-4f6a0c81b2.x").retry is False


def test_several_receivers_are_asked_without_sleeping(targets: TargetServer, trusting: Certificates) -> None:
    """Its plugins would wait 5.5 s between two."""
    site = serve(targets, trusting, [answer(200, b"{}")])
    start = time.monotonic()
    assert deliver(f"ntfys://127.0.0.1:{site.port}/one/two/three/four").delivered
    assert len(site.seen) == 4
    assert time.monotonic() - start < 5


def test_certificates_are_verified(targets: TargetServer, trusting: Certificates) -> None:
    site = targets.serve([answer()], tls=trusting.unknown_issuer())
    outcome = deliver(f"gotifys://127.0.0.1:{site.port}/Aa1-4f6a0c81b2.x")
    assert "certificate is not valid" in outcome.detail
    assert site.seen == []


def test_nothing_is_sent_outside_of_a_try() -> None:
    with pytest.raises(RuntimeError):
        apprise_plugins.REQUESTS.post("https://example.com/")


def test_nothing_secret_is_logged(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], targets: TargetServer
) -> None:
    for url in (f"slack://{TOKEN}", f"gotifys://127.0.0.1:1/{TOKEN}", f"nothing://{TOKEN}"):
        outcome = deliver(url)
        assert TOKEN not in outcome.detail
    out, err = capfd.readouterr()
    assert TOKEN not in caplog.text + out + err


# --- every plugin of the list

HARMLESS = {
    "__future__",
    "base64",
    "collections",
    "contextlib",
    "contextvars",
    "cryptography",
    "datetime",
    "enum",
    "gzip",
    "hashlib",
    "hmac",
    "html",
    "io",
    "itertools",
    "json",
    "logging",
    "math",
    "os",  # urandom and path; test_no_plugin_uses_more_of_os
    "re",
    "requests",  # replaced
    "secrets",
    "string",
    "struct",
    "threading",  # a lock
    "time",
    "typing",
    "urllib.parse",
    "uuid",
    "xml.sax.saxutils",
}
HARMLESS_OF_APPRISE = {
    "apprise_attachment",  # replaced
    "attachment.base",
    "attachment.memory",
    "common",
    "conversion",
    "exception",
    "locale",
    "url",
    "utils.http",  # only the parts that test_no_plugin_uses_more_of_os names
    "utils.parse",
    "utils.sanitize",
    "utils.templates",
}


def sources(service: Service) -> Iterator[tuple[str, ast.Module]]:
    plugin = apprise_plugins.load(service)
    name = f"apprise.plugins.{service.module}"
    assert plugin.__module__.startswith(name)
    for loaded, module in list(sys.modules.items()):
        if loaded == name or loaded.startswith(f"{name}."):
            assert module.__file__ is not None
            yield loaded, ast.parse(Path(module.__file__).read_text())


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.module)
def test_a_plugin_can_reach_nothing_but_our_stand_in(service: Service) -> None:
    for name, tree in sources(service):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    assert alias.name in HARMLESS, f"{name} imports {alias.name}"
            elif isinstance(node, ast.ImportFrom) and not node.level:
                top = node.module or ""
                assert top in HARMLESS or top.partition(".")[0] in HARMLESS - {"urllib", "requests"}, top
            elif isinstance(node, ast.ImportFrom):
                assert_harmless_of_apprise(node)
        module = sys.modules[name]
        for inner, value in vars(module).items():
            if inner == "requests":
                assert value is apprise_plugins.REQUESTS
            if inner == "AppriseAttachment":
                assert value is apprise_plugins.NoAttachments
            if isinstance(value, types.ModuleType):
                assert value.__name__.partition(".")[0] in HARMLESS | {"apprise", "cryptography"}, value
                assert "requests" not in value.__name__, value


def assert_harmless_of_apprise(node: ast.ImportFrom) -> None:
    module = node.module or ""
    names = {alias.name for alias in node.names}
    if module == "utils.http":
        assert names <= {"is_secure_http_url", "read_bounded_response"}
    elif module == "":
        assert names <= {"exception", "e2ee", "sas", "sizing", "base"}
    elif module == "discord":
        assert names == {"USER_ROLE_DETECTION_RE"}
    else:
        inside = {"base", "e2ee", "sas", "sizing"}  # the plugins' own base, and parts of Matrix's
        assert module in HARMLESS_OF_APPRISE | inside, module


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.module)
def test_no_plugin_uses_more_of_os(service: Service) -> None:
    for name, tree in sources(service):
        used = {
            ast.unparse(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and ast.unparse(node).startswith(("os.", "_os.", "threading."))
        }
        assert used <= {"os.path", "os.path.basename", "os.urandom", "_os.urandom", "threading.Lock"}, name
        called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        assert not called & {"eval", "exec", "compile", "__import__", "importlib.import_module"}, name


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.module)
def test_a_service_is_what_the_list_says(service: Service) -> None:
    plugin = apprise_plugins.load(service)
    assert str(plugin.service_name) == service.name
    assert set(apprise_plugins._schemes(plugin)) == set(service.schemes)
    assert any("{host}" in template for template in plugin.templates) == service.own_host
    known = set(plugin.template_args) | set(plugin.template_tokens)
    assert set(service.defaults) <= known | {"external_id", "thirdparty"}


def test_no_scheme_is_listed_twice() -> None:
    assert len(BY_SCHEME) == sum(len(service.schemes) for service in SERVICES)


def test_the_registry_of_all_plugins_is_never_loaded() -> None:
    """It would import every plugin module and every optional library that is installed."""
    script = """
import sys, django
django.setup()
from alerts.transports import apprise_plugins
apprise_plugins.plugin_for(sys.argv[1])
loaded = {name.split(".")[2] for name in sys.modules if name.startswith("apprise.plugins.")}
assert loaded == {"base", "slack"}, loaded
"""
    run(script, SLACK)


def test_who_does_not_send_imports_no_way_to_send() -> None:
    run("""
import sys, django
sys.argv = ["celery"]  # workers and beat; social_core loads requests in the web process
django.setup()
import alerts.transports, config.celery
assert not {"smtplib", "requests"} & set(sys.modules)
""")
    run("""
import sys, django
django.setup()
import config.urls
ways = {"apprise", "smtplib", "notifications.smtp", "alerts.transports.http", "alerts.transports.apprise_plugins"}
assert not ways & set(sys.modules), ways & set(sys.modules)
""")


def run(script: str, *arguments: str) -> None:
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "config.settings"}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_nothing_is_written_to_disk() -> None:
    plugin: Any = apprise_plugins.plugin_for(SLACK)
    plugin.store.set("key", "value")
    assert plugin.store.mode == "memory"
    assert plugin.store.flush(force=True) is not None
    assert not plugin.store.path or not Path(plugin.store.path).exists()


def test_the_version_is_the_one_that_was_looked_at() -> None:
    """A new version of Apprise may add plugins with other behaviour: review them, then update this line."""
    assert importlib.metadata.version("apprise") == "2.2.0"


def test_the_table_of_services() -> None:
    text = documents.DOCUMENT.read_text()
    assert documents.with_services(text) == text, "run: python -m tests.generated"


def test_a_closed_port() -> None:
    port = free_port()
    outcome = deliver(f"gotifys://127.0.0.1:{port}/Aa1-4f6a0c81b2.x")
    assert outcome.detail == "Gotify: The receiver refused the connection."


ODD = ("", "x", "/", "a:b@c:99999/d", "a:b@[::1", "%00/%0a", "a/b/c/d/e/f?g=h&i", "é.example/☃", "@@::/?to=,,", "1/2/3")


def test_odd_urls_are_refused_or_taken(recwarn: pytest.WarningsRecorder) -> None:
    for scheme in BY_SCHEME:
        for odd in ODD:
            with contextlib.suppress(ValueError):
                apprise_plugins.plugin_for(f"{scheme}://{odd}")
    gc.collect()  # takes 0.2 s, so done once
    assert not recwarn.list
