"""port, udp, ping and dns monitors in a file."""

from __future__ import annotations

from textwrap import indent

import pytest
import trustme

from monitors.models import Monitor
from tests.factories import UserFactory
from tests.manifests.helpers import apply_text, exported, refusal, told

pytestmark = pytest.mark.django_db

FILE = """\
version: 1
monitors:
  - name: Mail
    type: port
    url: tls://mail.example.com:25?starttls=smtp
    check_ssl: true
    content_rules:
      - {type: text_contains, value: ESMTP}
  - name: Game
    type: udp
    url: udp://game.example.com:27015
    request_body: ffffffff54
    request_body_encoding: hex
  - name: Router
    type: ping
    url: icmp://router.example.com
    packets: 5
    min_replies: 4
  - name: Records
    type: dns
    url: dns:example.com?type=MX
    records: [10 mail.example.com, 20 other.example.com]
"""


def test_a_file_makes_each_type_and_its_export_says_the_same() -> None:
    user = UserFactory()
    assert apply_text(user, FILE).created == 4
    found = {monitor.name: monitor for monitor in Monitor.objects.all()}
    assert {name: monitor.type for name, monitor in found.items()} == {
        "Mail": "port", "Game": "udp", "Router": "ping", "Records": "dns",
    }  # fmt: skip
    assert found["Game"].options["request_body_encoding"] == "hex"
    assert (found["Router"].options["packets"], found["Router"].options["min_replies"]) == (5, 4)
    assert found["Records"].options["records"] == ["10 mail.example.com", "20 other.example.com"]
    text = exported(user)
    assert apply_text(user, text).changes == apply_text(user, FILE).changes == []
    other = UserFactory()
    apply_text(other, text)
    assert exported(other) == text


def test_a_change_of_each_is_notified() -> None:
    user = UserFactory()
    apply_text(user, FILE)
    changed = FILE.replace("packets: 5", "packets: 10").replace("ffffffff54", "00ff").replace("?type=MX", "?type=mx")
    lines = told(apply_text(user, changed, dry_run=True))
    assert [line.strip() for line in lines if "packets" in line] == ["packets: 5 → 10"]
    assert sum(line.startswith("~") for line in lines) == 3


@pytest.mark.parametrize(
    ("good", "bad", "problem"),
    [
        ("tls://mail.example.com:25?starttls=smtp", "tcp://mail.example.com", "monitors[0].url: must name a port"),
        ("tls://mail.example.com:25?starttls=smtp", "https://mail.example.com/", "monitors[0].url: must begin with"),
        (
            "{type: text_contains, value: ESMTP}",
            "{type: json_field, path: a}",
            "monitors[0].content_rules[0].type: json_field needs",
        ),
        ("ffffffff54", "xyz", "monitors[1].request_body: is not hex, for example 0d0a."),
        ("encoding: hex", "encoding: rot13", "monitors[1].request_body_encoding: must be one of text, hex, base64."),
        ("packets: 5", "packets: 3", "monitors[2].min_replies: must be at most packets, which is 3."),
        ("packets: 5", "packets: 11", "monitors[2].packets: "),
        ("icmp://router.example.com", "icmp://router.example.com:7", "monitors[2].url: cannot contain a port"),
        ("20 other.example.com", "nonsense", "monitors[3].records[1]: "),
        ("type=MX", "type=ANY", "monitors[3].url: must ask for one of these types"),
    ],
)
def test_bad_input_has_its_line(good: str, bad: str, problem: str) -> None:
    (line,) = refusal(UserFactory(), FILE.replace(good, bad, 1))
    place, _, text = line.partition(": ")
    assert text.startswith(problem)
    assert place.split(":")[0].isdigit()
    assert not Monitor.objects.exists()


PEM = trustme.CA().cert_pem.bytes().decode() + trustme.CA().cert_pem.bytes().decode()
UNVERIFIED = f"""\
version: 1
monitors:
  - name: NAS
    url: https://nas.example.com/
    tls_verify: false
  - name: Mail
    type: port
    url: tls://mail.example.com:25?starttls=smtp
    ca_certificate: |
{indent(PEM, "      ")}"""


def test_the_verification_of_certificates_comes_back() -> None:
    user, other = UserFactory(), UserFactory()
    assert apply_text(user, UNVERIFIED).created == 2
    text = exported(user)
    assert apply_text(user, text).changes == apply_text(user, UNVERIFIED).changes == []
    apply_text(other, text)
    assert exported(other) == text
    found = {monitor.name: monitor.options for monitor in Monitor.objects.filter(owner=other)}
    assert (found["NAS"]["tls_verify"], found["NAS"]["ca_certificate"]) == (False, None)
    assert (found["Mail"]["tls_verify"], found["Mail"]["ca_certificate"]) == (True, PEM)
    trusting = text.replace("tls_verify: false", "tls_verify: true")
    assert [line.strip() for line in told(apply_text(other, trusting))][1:] == ["tls_verify: false → true"]
    assert (
        "monitors[0].tls_verify: cannot be false with check_ssl"
        in refusal(other, UNVERIFIED.replace("tls_verify: false", "tls_verify: false\n    check_ssl: true"))[0]
    )
