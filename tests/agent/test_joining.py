"""How an agent joins its location, and the file that it keeps."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import msgspec
import pytest

from checks.agent_protocol import JOIN, LEASES, PROTOCOL, Joined
from core.cli import UsageError
from core.version import product_version
from pulsekeeper.agent.server import checked_server
from tests.agent.conftest import PATIENCE_SEC, Agents
from tests.agent.server import CREDENTIAL, TOKEN, LocationServer, error
from tests.processes.up import free_port
from tests.processes.waiting import until
from tests.targets.certificates import Certificates
from tests.targets.server import TargetServer, answer


def test_it_joins_once(agents: Agents, server: LocationServer) -> None:
    first = agents.serve("--name", "fra-1")
    (join,) = server.joins
    assert (join.token, join.name, join.protocol, join.version) == (TOKEN, "fra-1", PROTOCOL, product_version())
    assert first.stop() == 0
    assert stat.S_IMODE(agents.state.stat().st_mode) == 0o600
    assert stat.S_IMODE(agents.state.parent.stat().st_mode) == 0o700
    assert [file.name for file in agents.state.parent.iterdir()] == ["agent.json"]
    stored = json.loads(agents.state.read_text())
    assert (stored["server"], stored["credential"], stored["agent_id"]) == (server.url, CREDENTIAL, "agt_1")
    assert TOKEN not in agents.state.read_text()

    for arguments in ((), ("--server", server.url), ("--join", TOKEN)):
        server.polls.clear()
        again = agents.start(*arguments)
        until(lambda: server.polls, PATIENCE_SEC, "it asks for leases")
        assert again.stop() == 0
        assert "serving location Frankfurt" in again.log
        assert not {word for word in (CREDENTIAL, TOKEN) if word in first.log + again.log}
    assert len(server.joins) == 1


@pytest.mark.parametrize("source", ["stdin", "environment"])
def test_the_token_is_no_argument(agents: Agents, server: LocationServer, source: str) -> None:
    if source == "stdin":
        agents.start("--server", server.url, "--join", "-", stdin=f"{TOKEN}\n")
    else:
        agents.start(PULSEKEEPER_URL=server.url, PULSEKEEPER_JOIN_TOKEN=TOKEN)
    until(lambda: server.polls, PATIENCE_SEC, "it asks for leases")
    (join,) = server.joins
    assert (join.token, join.name) == (TOKEN, os.uname().nodename)


def test_another_token_joins_again(agents: Agents, server: LocationServer) -> None:
    assert agents.serve().stop() == 0
    before = agents.state.read_text()
    agents.state.chmod(0o644)
    refused = agents.start("--join", "pkj_unknown")
    assert refused.code() == 2
    assert "It was used already." in refused.log
    assert "pkj_unknown" not in refused.log
    assert agents.state.read_text() == before
    server.tokens.add("pkj_other")
    server.polls.clear()
    agents.start("--join", "pkj_other")
    until(lambda: server.polls, PATIENCE_SEC, "it asks for leases")
    assert len(server.joins) == 2
    assert agents.state.read_text() != before
    assert stat.S_IMODE(agents.state.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "this is the first start"),
        (("--join", TOKEN), 2, "give --server, or PULSEKEEPER_URL"),
        (("--server", "http://status.example", "--join", TOKEN), 2, "--server must be https"),
        (("--server", "ftp://127.0.0.1", "--join", TOKEN), 2, "--server is not a valid address"),
        (("--server", "https://u:p@status.example", "--join", TOKEN), 2, "--server is not a valid address"),
        (("--server", "{nowhere}", "--join", TOKEN), 4, "cannot be reached"),
        (("--server", "{url}", "--join", f"{TOKEN}\t{TOKEN}"), 2, "--join is not a join token"),
        (("--server", "{url}", "--jion", TOKEN), 2, "unrecognized arguments"),
        (("--server", "{url}", "--join", TOKEN, "--allow", "10.0.0.0/33"), 2, "--allow: '10.0.0.0/33' is not"),
        (("--server", "{url}", "--join", TOKEN, "--dns", "name"), 2, "--dns: 'name' is not"),
        (("--server", "{url}", "--join", TOKEN, "--connectivity", "name"), 2, "--connectivity: 'name' is not"),
        (
            ("--server", "{url}", "--join", TOKEN, "--state", "/proc/agent.json"),
            2,
            "/proc/agent.json cannot be written",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_join(
    agents: Agents, server: LocationServer, arguments: tuple[str, ...], code: int, words: str
) -> None:
    places = {"{url}": server.url, "{nowhere}": f"http://127.0.0.1:{free_port()}"}
    ended = agents.start(*(places.get(word, word) for word in arguments))
    assert (ended.code(), words in ended.log) == (code, True), ended.log
    assert TOKEN not in ended.log
    assert "Traceback" not in ended.log
    assert server.joins == []
    assert not agents.state.exists()


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (error(409, "agent_outdated", "Versions 2 to 3 are accepted."), 5, "Versions 2 to 3 are accepted."),
        ((500, b"<html>", {}), 4, "answers with status 500"),
        ((302, b"", {"Location": "https://elsewhere.example"}), 4, "answers with status 302"),
        ((201, b"<html>", {}), 4, "does not answer as Pulsekeeper does"),
        ((201, b'{"agent_id": 1}', {}), 4, "does not answer as Pulsekeeper does"),
        (
            (201, b'{"agent_id":"a","credential":"a\\r\\nX: y","location_id":"","location_name":""}', {}),
            2,
            "a credential that cannot be used",
        ),
        (None, 4, "cannot be reached"),
    ],
)
def test_a_server_that_does_not_let_it_join(
    agents: Agents, server: LocationServer, reply: tuple[int, bytes, dict[str, str]] | None, code: int, words: str
) -> None:
    server.fail(JOIN, reply)
    ended = agents.start("--server", server.url, "--join", TOKEN)
    assert (ended.code(), words in ended.log) == (code, True), ended.log
    assert list(agents.state.parent.iterdir()) == []


@pytest.mark.parametrize("trusted", [True, False])
def test_the_authorities_of_ssl_cert_file_count(
    agents: Agents, targets: TargetServer, tmp_path: Path, trusted: bool
) -> None:
    certificates = Certificates(tmp_path)
    joined = answer(201, msgspec.json.encode(Joined("agt_1", CREDENTIAL, "loc_1", "Frankfurt")))
    revoked = answer(401, b'{"error": "unauthorized"}')
    site = targets.serve({JOIN: [joined], LEASES: [revoked]}, tls=certificates.good())
    variables = {"SSL_CERT_FILE": certificates.ca_file} if trusted else {}
    ended = agents.start("--server", site.url(""), "--join", TOKEN, **variables)
    assert ended.code() == (3 if trusted else 4), ended.log
    assert [seen.header("authorization") for seen in site.seen] == ([None, f"Bearer {CREDENTIAL}"] if trusted else [])


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b'{"server": 1}', b"\xff"])
def test_a_state_file_that_is_none(agents: Agents, content: bytes) -> None:
    agents.state.parent.mkdir()
    agents.state.write_bytes(content)
    ended = agents.start()
    assert ended.code() == 2
    assert "is not the state of an agent: remove it" in ended.log
    assert agents.state.read_bytes() == content


def test_a_credential_stays_with_its_server(agents: Agents, server: LocationServer) -> None:
    assert agents.serve().stop() == 0
    ended = agents.start("--server", "https://other.example")
    assert ended.code() == 2
    assert f"it has joined {server.url}" in ended.log


def test_the_default_file(agents: Agents, server: LocationServer, tmp_path: Path) -> None:
    agents.start("--server", server.url, "--join", TOKEN, PULSEKEEPER_STATE="", HOME=str(tmp_path))
    until(lambda: server.polls, PATIENCE_SEC, "it asks for leases")
    assert (tmp_path / ".local/state/pulsekeeper/agent.json").exists()


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "http://[::1]/x/", "http://localhost", "https://a.example:8/x"]
)
def test_addresses_of_servers(url: str) -> None:
    assert checked_server(url) == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1",
        "http://localhost.example",
        "http://127.0.0.1.example",
        "http://127.0.0.1@status.example",
        "http://localhost\\@status.example",
        "https://status.example?x=1",
        "https://status.example/#x",
        "https://",
        "https://a:0",
        "https://a b",
        "https://ä.example",
        "file:///etc/passwd",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        checked_server(url)
