"""Targets and settings of port, udp, ping and dns monitors: accepted and rejected ones."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from monitors import configuration, types
from monitors.services import permits_host
from monitors.types.settings import MonitorConfig
from tests.api.client import Api

JSON_RULE = {"type": "json_field", "path": "a"}
TEXT_RULE = {"type": "text_contains", "value": "a"}
HEX, HEX_RULE = {"request_body_encoding": "hex"}, {"type": "text_contains", "value": "0d0a"}
ACCEPTED: list[dict[str, Any]] = [
    {"type": "port", "url": "tcp://db.example:5432"},
    {"type": "port", "url": "tcp://[2606:4700::1111]:53"},
    {"type": "port", "url": "tcp://bücher.example:80", "request_body": "PING\r\n"},
    {"type": "port", "url": "tls://mail.example:465", "check_ssl": True},
    {"type": "port", "url": "tls://mail.example:25?starttls=smtp"},
    {"type": "port", "url": "tls://db.example:5432?starttls=postgres"},
    {"type": "port", "url": "tcp://db.example:1", "request_body": "00ff", "request_body_encoding": "hex"},
    {"type": "port", "url": "tcp://db.example:1", "request_body": "AP8=", "request_body_encoding": "base64"},
    {"type": "port", "url": "tcp://db.example:1", "content_rules": [{"type": "text_absent", "value": "no"}]},
    {"type": "udp", "url": "udp://ns.example:53", "request_body": "ab" * 512, "request_body_encoding": "hex"},
    {"type": "ping", "url": "icmp://router.example", "packets": 10, "min_replies": 10},
    {"type": "ping", "url": "icmp://[2606:4700::1111]"},
    {"type": "dns", "url": "dns:shop.example"},
    {"type": "dns", "url": "dns:shop.example?type=mx", "records": ["10 mail.shop.example."]},
    {"type": "dns", "url": "dns://1.1.1.1/shop.example?type=TXT"},
    {"type": "dns", "url": "dns://[2606:4700::1111]:5353/shop.example?type=AAAA"},
    {"type": "udp", "url": "udp://ns.example:53", "content_rules": [HEX_RULE], **HEX},
    # Fields that do not apply to the type are stored.
    {"type": "dns", "url": "dns:shop.example", "content_rules": [TEXT_RULE], **HEX},
    {"type": "dns", "url": "dns:shop.example", "request_body": ""},
    {"type": "ping", "url": "icmp://router.example", "request_body": ""},
    {"type": "dns", "url": "dns:shop.example", "packets": 5, "method": "POST", "request_body_encoding": "hex"},
    {"type": "http", "url": "https://shop.example/", "packets": 2, "min_replies": 9, "records": ["1.2.3.4"]},
]


@pytest.mark.parametrize("given", ACCEPTED, ids=lambda given: given["url"])
def test_what_is_given_is_stored_and_can_be_sent_back(given: dict[str, Any]) -> None:
    made = configuration.complete(given, configuration.Limits(floor_sec=60, permits_host=permits_host))
    columns = configuration.config_columns(made)
    common = [columns[name] for name in MonitorConfig.columns]
    stored = configuration.load(common, json.dumps(columns["config"]), columns["header_values"] or ())
    assert stored == made
    settings = {name: stored[name] for name in ("type", *types.settings())}
    shown = msgspec.json.decode(msgspec.json.encode(settings))
    assert {name: shown[name] for name in given} == given
    assert configuration.patch(stored, shown, configuration.Limits(floor_sec=60, permits_host=permits_host)) == stored


PORT, UDP = {"type": "port", "url": "tcp://db.example:1"}, {"type": "udp", "url": "udp://db.example:1"}
PING, DNS = {"type": "ping", "url": "icmp://router.example"}, {"type": "dns", "url": "dns:shop.example"}
HTTP, TXT = {"type": "http", "url": "http://a.example/"}, {"type": "dns", "url": "dns:shop.example?type=TXT"}
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    (PORT, {"url": ""}, "url", "is required"),
    (PORT, {"url": "http://db.example:80"}, "url", "tcp://"),
    (PORT, {"url": "udp://db.example:80"}, "url", "tcp://"),
    (PORT, {"url": "tcp://db.example"}, "url", "tcp://db.example.com:5432"),
    (PORT, {"url": "tcp://db.example:0"}, "url", "1 to 65535"),
    (PORT, {"url": "tcp://db.example:65536"}, "url", "1 to 65535"),
    (PORT, {"url": "tcp://:5432"}, "url", "host"),
    (PORT, {"url": "tcp://me:secret@db.example:5432"}, "url", "password"),
    (PORT, {"url": "tcp://db.example:5432/path"}, "url", "path"),
    (PORT, {"url": "tcp://db.example:5432#"}, "url", "fragment"),
    (PORT, {"url": "tcp://db.example:5432?starttls=smtp"}, "url", "starttls"),
    (PORT, {"url": "tls://db.example:5432?starttls=smtp&a=b"}, "url", "starttls"),
    (PORT, {"url": "tcp://db..example:1"}, "url", "host"),
    (PORT, {"url": "tcp://10.0.0.1:1"}, "url", "private"),
    (PORT, {"url": "tcp://[::ffff:10.0.0.1]:1"}, "url", "private"),
    (PORT, {"url": "tcp://0x0a.1:1"}, "url", "private"),
    (PORT, {"url": "tcp://db example:1"}, "url", "spaces"),
    (PORT, {"url": "tcp://db.example:1" + "0" * 2_048}, "url", "2048"),
    (PORT, {"content_rules": [JSON_RULE]}, "content_rules[0].type", "text_contains"),
    (PORT, {"request_body": "zz", "request_body_encoding": "hex"}, "request_body", "0d0a"),
    (PORT, {"request_body": "=", "request_body_encoding": "base64"}, "request_body", "DQo="),
    (PORT, {"content_rules": [HEX_RULE, HEX_RULE | {"value": "0D0A"}], **HEX}, "content_rules[1].value", "hex"),
    (PORT, {"content_rules": [HEX_RULE | {"value": "0d0"}], **HEX}, "content_rules[0].value", "for example 0d0a"),
    (UDP, {"content_rules": [HEX_RULE | {"value": "0d 0a"}], **HEX}, "content_rules[0].value", "lower-case hex"),
    (UDP, {"content_rules": [TEXT_RULE], "request_body_encoding": "base64"}, "content_rules[0].value", "hex"),
    (PORT, {"request_body_encoding": "utf-16"}, "request_body_encoding", "hex"),
    (PORT, {"url": "tls://db.example:5432?starttls=xmpp"}, "url", "smtp"),
    (PORT, {"url": "tcp://-e:53"}, "url", "host"),
    (PORT, {"url": "tcp://[::1]x:53"}, "url", "valid"),
    (PORT, {"url": "tcp://foo[::1]:53"}, "url", "valid"),
    (PORT, {"url": "tcp://[v1.a]:53"}, "url", "valid"),
    (PORT, {"url": "tcp://a$b:53"}, "url", "host"),
    (PORT, {"url": "tcp://*.example.com:53"}, "url", "host"),
    (PORT, {"url": "tcp://db.example:5432?"}, "url", "query"),
    (PORT, {"url": "tls://db.example:65536"}, "url", "tls://"),
    (PING, {"url": "icmp://router.example?a=b"}, "url", "query"),
    (PING, {"url": "icmp://router.example?"}, "url", "query"),
    (UDP, {"url": "udp://10.0.0.1:53"}, "url", "private"),
    (UDP, {"url": "udp://ns.example"}, "url", "port"),
    (UDP, {"request_body": "a" * 513}, "request_body", "512"),
    (UDP, {"request_body": "é" * 257}, "request_body", "512"),
    (UDP, {"content_rules": [JSON_RULE]}, "content_rules[0].type", "text_contains"),
    (PING, {"url": "icmp://router.example:80"}, "url", "port"),
    (PING, {"url": "icmp://router.example/"}, "url", "path"),
    (PING, {"url": "icmp://169.254.169.254"}, "url", "private"),
    (PING, {"content_rules": [TEXT_RULE]}, "content_rules", "no rules"),
    (PING, {"request_body": "a"}, "request_body", "no body"),
    (PING, {"packets": 0}, "packets", "1"),
    (PING, {"packets": 11}, "packets", "10"),
    (PING, {"min_replies": 0}, "min_replies", "1"),
    (PING, {"packets": 2, "min_replies": 3}, "min_replies", "packets"),
    (DNS, {"url": "dns:"}, "url", "name"),
    (DNS, {"url": "dns:shop.example?type=ANY"}, "url", "AAAA"),
    (DNS, {"url": "dns:shop.example?class=CH"}, "url", "class IN"),
    (DNS, {"url": "dns:shop.example#a"}, "url", "fragment"),
    (DNS, {"url": "dns://resolver.example/shop.example"}, "url", "address"),
    (DNS, {"url": "dns://10.0.0.1/shop.example"}, "url", "private"),
    (DNS, {"url": "dns://1.1.1.1:0/shop.example"}, "url", "port"),
    (DNS, {"url": "dns://1.1.1.1"}, "url", "name"),
    (DNS, {"content_rules": [JSON_RULE]}, "content_rules[0].type", "text_contains"),
    (DNS, {"content_rules": [{"type": "text_contains", "value": "gr\u00fcn"}]}, "content_rules[0].value", "Punycode"),
    (DNS, {"content_rules": [{"type": "text_absent", "value": "a\tb"}]}, "content_rules[0].value", "cannot match"),
    (DNS, {"request_body": "a"}, "request_body", "no body"),
    (DNS, {"records": []}, "records", "at least one"),
    (DNS, {"records": ["1.2.3.4"] * 17}, "records", "16"),
    (DNS, {"records": ["mail.shop.example"]}, "records[0]", ""),
    (DNS, {"records": "1.2.3.4"}, "records", ""),
    (TXT, {"records": ["v=spf1 -all", "a" * 4097]}, "records[1]", "4096"),
    (HTTP, {"records": ["a" * 4097]}, "records[0]", "4096"),
    (TXT, {"records": ["v=spf1\n-all"]}, "records[0]", "one line"),
    (TXT, {"records": ["v=spf1 -all\r\n"]}, "records[0]", "one line"),
    (TXT, {"records": ["v=spf1 -all", " "]}, "records[1]", "not blank"),
    (HTTP, {"request_body_encoding": "hex"}, "request_body_encoding", "text"),
    ({"type": "http"}, {"url": "tcp://shop.example:80"}, "url", "http://"),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("body", "change", "field", "words"), REFUSED, ids=str)
def test_what_is_wrong_is_refused_with_its_field_and_what_is_accepted(
    api: Api, body: dict[str, Any], change: dict[str, Any], field: str, words: str
) -> None:
    for path in ("/v1/monitors", "/v1/monitors/test"):
        refused = api.post(path, body | change)
        assert (refused.status, refused.error.split(":")[0]) == (422, f"validation_error {field}"), refused.error
        assert words in refused.json["reason"]
