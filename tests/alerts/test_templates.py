"""Templates of channels: what they can read, where their texts appear, and hostile ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from alerts import messages, template_renderer, templates
from alerts.events import EventType, Payload
from alerts.models import AlertChannel
from alerts.outbox import _send
from alerts.template_renderer import MEMORY_BYTES
from core import metrics
from core.errors import ValidationFailed
from tests.alerts.drivers import at, make_channel
from tests.alerts.receiver import Receiver
from tests.factories import UserFactory

BASE = "https://up.example"
LINK = f"{BASE}/incidents/inc_1"
DOWN = Payload(
    EventType.DOWN,
    at=1_772_366_460_000,
    monitor_id="mon_1",
    monitor="Shop",
    type="http",
    url="https://shop.example/health?key=hunter2",
    incident_id="inc_1",
    started_at=1_772_366_400_000,
    reason_code="http_failure",
    detail="Answered 500: @everyone see http://evil.example",
)


def rendered(payload: Payload = DOWN, *, channel: AlertChannel | None = None, **parts: str) -> messages.Message:
    """Return the message of a channel with this template for `down`."""
    message = messages.render([payload], key="dlv_1", base_url=BASE, now=at(60))
    channel = channel or AlertChannel(kind="slack", owner_id=1)
    channel.templates = channel.templates or {"down": parts}
    return templates.applied(channel, [payload], message)


def test_the_title_and_the_body_replace_ours() -> None:
    message = rendered(title="{{ event | upcase }}\n{{ monitor.name }}", body="{{ monitor.name }}:\n\n{{ link }}")
    assert message.subject == "DOWN Shop"
    assert message.text == f"Shop:\n\n{LINK}\n"
    assert message.short == f"Shop:\n\n{LINK}"
    assert "<h1" not in message.html
    assert "<p>Shop:</p>" in message.html
    assert (message.webhook_body["title"], message.webhook_body["text"]) == ("DOWN Shop", f"Shop:\n\n{LINK}")
    plain = rendered(title="{{ text }}")
    assert (plain.subject, plain.text) == ("Shop is down.", rendered().text)


@pytest.mark.parametrize("text", ["", "  ", "{% if location %}x{% endif %}", "{{ nothing.at.all }}"])
def test_a_blank_text_is_not_sent(text: str) -> None:
    assert rendered(title=text, body=text) == rendered()


def test_html_in_a_template_is_text() -> None:
    message = rendered(title="<b>\r\nBcc: a@b.example", body="<script>{{ detail }}</script>")
    assert message.subject == "<b> Bcc: a@b.example"
    assert "<script>" not in message.html
    assert "&lt;script&gt;" in message.html


def test_variables_are_the_fields_of_the_webhook() -> None:
    body = "{{ event }} {{ monitor.id }} {{ incident.started_at | divided_by: 1000 | date: '%H:%M:%S' }} {{ link }}"
    assert rendered(body=body).text == f"down mon_1 12:00:00 {LINK}\n"


def test_values_from_targets_call_nobody_and_are_no_links() -> None:
    body = "{{ detail }} {{ incident.detail }} {{ monitor.url }} {{ link }}"
    told = rendered(body=body).short
    assert "@everyone" not in told
    assert "http://evil.example" not in told
    assert "hunter2" not in told
    assert told.endswith(LINK)
    webhook = rendered(body=body, channel=AlertChannel(kind="webhook", owner_id=1, templates={"down": {"body": body}}))
    assert webhook.webhook_body["text"] == f"{DOWN.detail} {DOWN.detail} {DOWN.url} {LINK}"


@pytest.mark.parametrize(
    ("event_type", "expected"),
    [
        (EventType.DOWN, "bad"),
        (EventType.STILL_DOWN, "bad"),
        (EventType.REMINDER, "bad"),
        (EventType.FLAPPING, "bad"),
        (EventType.RECOVERED, "good"),
        (EventType.SETTLED, "good"),
        (EventType.ACKNOWLEDGED, None),
        (EventType.PAUSED, None),
        (EventType.DELETED, None),
        (EventType.SLOW, None),
        (EventType.CERTIFICATE, None),
        (EventType.TEST, None),
    ],
)
def test_which_events_have_templates(event_type: EventType, expected: str | None) -> None:
    channel = AlertChannel(kind="slack", owner_id=1, templates={"down": {"body": "bad"}, "recovered": {"body": "good"}})
    payload = replace(DOWN, event_type=event_type)
    plain = messages.render([payload], key="dlv_1", base_url=BASE, now=at(60))
    assert rendered(payload, channel=channel).short == (expected or plain.short)


def test_a_group_has_our_text() -> None:
    items = [DOWN, replace(DOWN, monitor_id="mon_2", incident_id="inc_2", monitor="Blog")]
    message = messages.render(items, key="dlv_1", base_url=BASE, now=at(60))
    channel = AlertChannel(kind="slack", owner_id=1, templates={"down": {"body": "x"}})
    assert templates.applied(channel, items, message) is message


INVALID = {
    "{{ text": "line 1: expected '}}'",
    "a\n{% if %}": "line 2: missing expression",
    "a\n\n{% nope %}": "line 3: unexpected tag 'nope'",
    "\n{{ a | nope }}": "line 2: unknown filter 'nope'",
    "{% if a %}\n\nx": "line 3: expected tag endif",
    "{% case x %}": "line 1: ",
    "{% case %}{% case": "line 1: ",
    "{{ }}": "line 1: ",
    "{% include '/etc/passwd' %}": "line 1: unexpected tag 'include'",
    "{% render '/etc/passwd' %}": "line 1: unexpected tag 'render'",
    "{{" * 2_000: "line 1: ",
    "{%" * 2_000: "line 1: ",
    "{% if true %}" * 200 + "{% endif %}" * 110: "line 1: block nesting limit reached",
    "{{ " + "a[" * 1_500 + "]" * 400 + " }}": "line 1: ",
    "{% if " + "a and " * 600 + "a %}x{% endif %}": "line 1: ",
}


@pytest.mark.parametrize(("source", "reason"), INVALID.items(), ids=range(len(INVALID)))
def test_wrong_syntax_is_refused_with_its_line(source: str, reason: str) -> None:
    with pytest.raises(ValidationFailed, match=r"line \d+: ") as caught:
        templates.check({"recovered": {"body": source}})
    assert caught.value.reason.startswith(f"templates: recovered.body: {reason}")
    assert len(caught.value.reason) < 300


ATTACKS = {
    "a loop": "{% for i in (1..100000000) %}x{% endfor %}",
    "nested loops": "{% for i in (1..500) %}{% for j in (1..500) %}{% endfor %}{% endfor %}",
    "a late range": "{% for i in (1..99999999999) offset:99999999990 limit:2 %}{{i}}{% endfor %}",
    "a long range": "{{ (1..99999999) | join: ',' }}",
    "a sorted range": "{% assign x = (1..99999999) | sort %}",
    "a sum": "{{ (1..999999999) | sum }}",
    "doubling": "{% assign a = 'aaaaaaaaaa' %}" + "{% assign a = a | append: a %}" * 120,
    "doubling in a loop": "{% assign a = 'aaa' %}{% for i in (1..900) %}{% assign a = a | append: a %}{% endfor %}",
    "captures": "{% capture a %}aaaaaaaaaa{% endcapture %}" + "{% capture a %}{{ a }}{{ a }}{% endcapture %}" * 80,
    "replacing": "{{ 'aaaaaaaaaaaaaaaaaaaa'" + "| replace: 'a', 'aaaaaaaaaaaaaaaaaaaa'" * 80 + "}}",
    "concatenating": "{% assign a = '" + "a" * 1_500 + "' | split: '' %}{{ a" + "|concat:a" * 200 + "| join: 'xx' }}",
    "powers": "{% assign a = 9 %}{% for i in (1..900) %}{% assign a = a | times: a %}{% endfor %}{{ a }}",
    "dates": "{{ 'now' | date: '" + "%c" * 1_900 + "' }}",
    "an infinite number": "{{ '1e9999999' | ceil }}",
    "much work in a loop": "{% assign a = '" + "x" * 900 + "' %}{% for i in (1..999) %}"
    + "{% assign b = a | replace: 'x', 'yyyyyyyyyy' | replace: 'y', 'zzzzzzzzzz' %}" * 40 + "{% endfor %}",
}  # fmt: skip
"""Each takes minutes, gigabytes, or raises."""


# Started by a small process: the kernel counts what the starting process takes as the peak of the one that it starts.
MEASURE = """
import resource, subprocess, sys
subprocess.run([sys.executable, "-I", sys.argv[1]], stdin=sys.stdin, capture_output=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def peak_bytes(source: str) -> int:
    """Return the most memory that the renderer takes for a template."""
    given = json.dumps({"templates": {"body": source}, "variables": {}})
    command = [sys.executable, "-c", MEASURE, template_renderer.__file__]
    return int(subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("source", ATTACKS.values(), ids=ATTACKS)
def test_a_template_that_is_cut_off_is_replaced_by_the_plain_message(source: str) -> None:
    """The kernel ends the process after its second of CPU, so nothing here measures time."""
    before = counted("failed")
    templates.check({"down": {"body": source}})
    assert len(source) <= templates.MAX_CHARS
    assert rendered(body=source) == rendered()
    assert counted("failed") == before + 1
    assert peak_bytes(source) < 2 * MEMORY_BYTES


HARMLESS = {
    "{{ monitor.__class__ }}{{ monitor['__class__'] }}{{ text.__class__.__mro__ }}.": ".\n",
    "{{ monitor.items }}{{ monitor.keys }}{{ text.format }}.": ".\n",
    "{{ '{0.__class__}' }}{{ '%s' }}": "{0.__class__}%s\n",
    "{{ 'now' | date: '%500000000Y' }}.": ".\n",
    "{{ " + "a." * 1_900 + "b }}.": ".\n",
    "{{ '" + "<" * 3_800 + "' | strip_html | size }}": "3800\n",
    "{{ 'a' | slice: -999999999999999999999, 99999999999999999999999 }}.": ".\n",
    "{{ 1 | divided_by: 0 }}": None,
}


@pytest.mark.parametrize(("source", "text"), HARMLESS.items(), ids=range(len(HARMLESS)))
def test_python_is_out_of_reach(source: str, text: str | None) -> None:
    assert rendered(body=source).text == (text or rendered().text)


@pytest.mark.parametrize("program", ["/nonexistent", "/bin/true", "/bin/false"], ids=["missing", "silent", "failing"])
def test_a_renderer_that_cannot_start_costs_the_template_only(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", program)
    assert rendered(body="x") == rendered()


def counted(outcome: str) -> float:
    metrics.report()
    return templates.TEMPLATES.read(metrics.read_sums())[outcome,]


@pytest.mark.django_db
def test_a_webhook_with_a_template_over_the_network() -> None:
    owner = UserFactory()
    given: Mapping[str, Any] = {"down": {"title": "{{ monitor.name }}", "body": "{{ detail | truncatewords: 2 }}"}}
    channel = make_channel(owner, templates=given)
    with Receiver() as receiver:
        channel.config = {"url": f"{receiver.url}/sms", "secret": "s" * 40}
        assert _send(channel, [DOWN], "dlv_1").delivered
        channel.templates = {"down": {"body": ATTACKS["a sum"]}}
        assert _send(channel, [DOWN], "dlv_2").delivered
    first, second = receiver.calls
    assert (first.json["title"], first.json["text"]) == ("Shop", "Answered 500:...")
    assert second.json["text"] == "Shop is down."
    assert "title" not in second.json
