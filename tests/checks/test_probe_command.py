"""`manage.py probe` as in a pipeline: a separate process, exit codes and output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from checks.probes.ping.rights import may_ping
from monitors.management.commands.probe import Command
from tests.targets.certificates import Certificates
from tests.targets.datagrams import Datagrams
from tests.targets.resolvers import saying
from tests.targets.server import Hang, Pause, Seen, TargetServer, answer

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {
    "status",
    "latency_ms",
    "connect_ms",
    "ttfb_ms",
    "detail",
    "http_status",
    "loss",
    "reason_code",
    "cert_expires_at",
    "evidence",
}
NOWHERE = "http://127.0.0.1:1/"
PORT = "tcp://127.0.0.1:1"


def probe(*arguments: str, networks: str = "127.0.0.0/8") -> subprocess.CompletedProcess[str]:
    """Without a database or a broker, which the test session's environment would offer."""
    environment = {
        name: value for name, value in os.environ.items() if name not in {"DATABASE_URL", "REDIS_URL", "DATA_DIR"}
    }
    return subprocess.run(
        [sys.executable, "manage.py", "probe", *arguments],
        cwd=ROOT,
        env=environment | {"ALLOWED_PRIVATE_NETWORKS": networks},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_up(targets: TargetServer) -> None:
    site = targets.serve([answer(200, b'{"status": "ok"}')])
    ran = probe(site.url(), "--json-field", "status=ok", "--text-absent", "error", "--header", "X-Key: a: b", "--json")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert set(found) == FIELDS
    assert (found["status"], found["http_status"], found["detail"]) == ("up", 200, None)
    assert site.seen[0].method == "GET"
    assert site.seen[0].header("x-key") == "a: b"


def test_slow(targets: TargetServer) -> None:
    site = targets.serve([Pause(0.05), answer()])
    arguments = (site.url(), "--slow-ms", "50")
    passing, failing = probe(*arguments), probe(*arguments, "--fail-on-slow")
    assert (passing.returncode, failing.returncode) == (0, 1)
    assert passing.stdout.startswith(f"SLOW {site.url()} (status 200, latency ")
    assert "which is slow" in failing.stdout


def test_failing_and_hanging(targets: TargetServer) -> None:
    def routes(seen: Seen) -> list[bytes | Hang]:
        return [Hang()] if seen.path == "/hang" else [answer(503)]

    site = targets.serve(routes)
    failing = probe(site.url())
    assert failing.returncode == 2
    assert "DOWN" in failing.stdout
    assert "503" in failing.stdout
    assert "\n  answer: HTTP/1.1 503 Whatever\n" in failing.stdout
    hanging = probe(site.url("/hang"), "--timeout-ms", "1000", "--json")
    assert hanging.returncode == 2
    found = json.loads(hanging.stdout)
    assert (found["reason_code"], found["evidence"]["address"]) == ("timeout", f"127.0.0.1:{site.port}")


def test_http_with_a_body(targets: TargetServer) -> None:
    site = targets.serve([answer(200, b"thanks")])
    ran = probe(site.url(), "--method", "POST", "--body", '{"a": 1}', "--text-contains", "thanks")
    assert ran.returncode == 0, ran.stdout
    assert site.seen[0].body == b'{"a": 1}'


def test_tcp_and_tls(targets: TargetServer) -> None:
    site = targets.serve([answer(200, b"hello")])
    url = f"tcp://127.0.0.1:{site.port}"
    question = ("--body", b"GET / HTTP/1.0\r\n\r\n".hex(), "--body-encoding", "hex")
    passing = probe(url, *question, "--text-contains", b"hello".hex(), "--json")
    assert passing.returncode == 0, passing.stdout
    found = json.loads(passing.stdout)
    assert (found["status"], found["http_status"], found["connect_ms"] is None) == ("up", None, False)
    failing = probe(f"tls://127.0.0.1:{site.port}", "--check-ssl", "--timeout-ms", "2000", "--json")
    assert failing.returncode == 2
    found = json.loads(failing.stdout)
    assert found["evidence"]["address"] == f"127.0.0.1:{site.port}"
    refused = probe(PORT)
    assert refused.returncode == 2
    assert refused.stdout.startswith(f"DOWN {PORT}\n")


@pytest.mark.parametrize("scheme", ["https", "tls"])
def test_the_verification_of_certificates(
    scheme: str, targets: TargetServer, certificates: Certificates, tmp_path: Path
) -> None:
    site = targets.serve([answer()], tls=certificates.good())
    url = f"{scheme}://127.0.0.1:{site.port}"
    refused = probe(url)
    assert refused.returncode == 2
    assert "CA certificate (ca_certificate)" in refused.stdout
    assert probe(url, "--ca-certificate", certificates.ca_file, "--check-ssl").returncode == 0
    assert probe(url, "--no-tls-verify").returncode == 0
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    assert probe(url, "--ca-certificate", str(other)).returncode == 2


def test_udp(targets: TargetServer) -> None:
    service = targets.serve_datagrams(Datagrams([[b"\xca\xfe!"]]))
    url = f"udp://127.0.0.1:{service.port}"
    arguments = (url, "--body", "00ff", "--body-encoding", "hex")
    passing = probe(*arguments, "--text-contains", "cafe21", "--json")
    assert passing.returncode == 0, passing.stderr
    assert (json.loads(passing.stdout)["status"], service.seen[0][2]) == ("up", b"\x00\xff")
    failing = probe(*arguments, "--text-contains", "beef")
    assert failing.returncode == 2
    assert failing.stdout.startswith(f"DOWN {url} (latency ")
    assert f"\n  address: 127.0.0.1:{service.port}\n  datagrams sent: 1\n" in failing.stdout
    assert "\n  reply in hex: cafe21\n" in failing.stdout


def test_dns(targets: TargetServer) -> None:
    server = targets.serve_resolver(saying(("shop.example.", "MX", "10 mail.shop.example.")))
    url = f"dns://127.0.0.1:{server.port}/shop.example?type=MX"
    passing = probe(url, "--record", "10 MAIL.shop.example")
    assert passing.returncode == 0, passing.stdout
    failing = probe(url, "--record", "10 mail.shop.example", "--record", "20 other.shop.example", "--json")
    assert failing.returncode == 2
    found = json.loads(failing.stdout)
    assert found["reason_code"] == "content_failure"
    assert "20 other.shop.example" in found["detail"]
    assert "mail.shop.example" in found["evidence"]["body"]


def test_ping() -> None:
    if not may_ping():
        pytest.skip("no right to send pings")
    ran = probe("icmp://127.0.0.1", "--packets", "2", "--min-replies", "2")
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.startswith("UP icmp://127.0.0.1 (latency ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "URL"),
        (("nonsense",), "must begin with one of http:, https:, tcp:, tls:, udp:, icmp:, dns:"),
        (("ftp://127.0.0.1/",), "must begin with one of http:"),
        (("http://user:secret@127.0.0.1/",), "user name or password"),
        (("http://10.0.0.1/",), "10.0.0.1 is a private or reserved address"),
        (("http://0xa.1/",), "10.0.0.1 is a private or reserved address"),
        (("http://[fd00::1]/",), "fd00::1 is a private or reserved address"),
        ((NOWHERE, "--method", "BREW"), "--method"),
        ((NOWHERE, "--header", "no colon"), "--header takes 'Name: value'"),
        ((NOWHERE, "--header", "X Y: secret"), "--header: is not a valid header name"),
        ((NOWHERE, "--header", "Content-Length: 5"), "Content-Length"),
        ((NOWHERE, *("--header", "X: y") * 5), "at most 4 headers"),
        ((NOWHERE, *("--text-contains", "x") * 5), "at most 4 rules"),
        ((NOWHERE, "--json-field", "=ok"), "--json-field takes PATH"),
        ((NOWHERE, "--text-contains", ""), "--text-contains"),
        ((NOWHERE, "--timeout-ms", "999"), "--timeout-ms"),
        ((NOWHERE, "--timeout-ms", "soon"), "--timeout-ms"),
        ((NOWHERE, "--slow-ms", "-1"), "--slow-ms"),
        ((NOWHERE, "--expect-status", "99"), "--expect-status"),
        ((NOWHERE, "--unknown"), "--unknown"),
        ((NOWHERE, "--text-absent", "x", "--text-contains", "x" * 257), "--text-contains: "),
        ((NOWHERE, "--body", "x"), "--body: cannot be sent with HEAD"),
        ((NOWHERE, "--body-encoding", "hex"), "--body-encoding does not apply to http: addresses"),
        ((NOWHERE, "--packets", "3"), "--packets does not apply to http: addresses"),
        ((NOWHERE, "--record", "192.0.2.1"), "--record does not apply to http: addresses"),
        (("tcp://127.0.0.1",), "the URL: must name a port"),
        (("tcp://10.0.0.1:22",), "10.0.0.1 is a private or reserved address"),
        (("tls://127.0.0.1:25?starttls=gopher",), "the URL: accepts no query except starttls=smtp"),
        ((PORT, "--json-field", "a=b"), "--json-field does not apply to tcp: addresses"),
        ((PORT, "--method", "GET"), "--method does not apply to tcp: addresses"),
        ((PORT, "--header", "X: y"), "--header does not apply to tcp: addresses"),
        ((PORT, "--body", "abc", "--body-encoding", "hex"), "--body: is not hex, for example 0d0a"),
        ((PORT, "--body", "abc", "--body-encoding", "rot13"), "--body-encoding"),
        (("udp://127.0.0.1:9", "--body", "x" * 513), "--body: must be at most 512 bytes"),
        (("udp://127.0.0.1:9", "--check-ssl"), "--check-ssl does not apply to udp: addresses"),
        (("icmp://127.0.0.1:7",), "the URL: cannot contain a port"),
        (("icmp://127.0.0.1", "--text-contains", "x"), "--text-contains does not apply to icmp: addresses"),
        (("icmp://127.0.0.1", "--packets", "11"), "--packets: "),
        (("icmp://127.0.0.1", "--packets", "three"), "--packets"),
        (("icmp://127.0.0.1", "--packets", "2", "--min-replies", "3"), "--min-replies: must be at most packets"),
        (("icmp://127.0.0.1", "--body", "x"), "--body does not apply to icmp: addresses"),
        (("udp://127.0.0.1:9", "--no-tls-verify"), "--no-tls-verify does not apply to udp: addresses"),
        ((NOWHERE, "--no-tls-verify", "--check-ssl"), "--no-tls-verify: cannot be false with check_ssl"),
        ((NOWHERE, "--ca-certificate", "/nowhere.pem"), "--ca-certificate: No such file or directory"),
        ((NOWHERE, "--ca-certificate", __file__), "--ca-certificate: must be"),
        ((NOWHERE, "--ca-certificate", "/dev/zero"), "--ca-certificate: must "),
        (("dns:x.example?type=ANY",), "the URL: must ask for one of these types"),
        (("dns://10.0.0.1/x.example",), "10.0.0.1 is a private or reserved address"),
        (("dns:x.example", "--record", "nonsense"), "--record: "),
        (("dns:x.example", *("--record", "192.0.2.1") * 17), "at most 16 records"),
        (("dns:x.example", "--body", "x"), "--body does not apply to dns: addresses"),
    ],
    ids=str,
)
def test_bad_usage(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "probe", *arguments])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (3, "")
    assert words in printed.err
    assert printed.err.count("\n") == 1
    assert "secret" not in printed.err


def test_bad_usage_ends_the_process_with_3() -> None:
    ran = probe(NOWHERE, "--unknown")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "--unknown" in ran.stderr


def test_a_private_address_has_to_be_allowed() -> None:
    ran = probe(NOWHERE, networks="")
    assert ran.returncode == 3
    assert "127.0.0.1 is a private or reserved address" in ran.stderr


def test_help_has_an_example() -> None:
    ran = probe("--help")
    assert ran.returncode == 0
    assert "manage.py probe https://" in ran.stdout
    assert "exit codes" in ran.stdout
