"""The text of messages, and that names, details and bodies from outside cannot forge parts of it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import msgspec
import pytest

from alerts.events import EventType, Payload
from alerts.messages import MOST_ITEMS, MOST_NAMED, REASONS, Level, Message, render
from alerts.wording import duration
from checks.spec import ReasonCode
from tests.alerts import samples
from tests.alerts.samples import BASE_URL, DOWN, LOCATION_OFFLINE, LOCATION_ONLINE, NOW, ON_CALL_GAP, RECOVERED, at

KEY = "dlv_1"
INCIDENT = f"{BASE_URL}/incidents/{DOWN.incident_id}"
MONITOR = f"{BASE_URL}/monitors/{DOWN.monitor_id}"


def message(*items: Payload, now: datetime = NOW) -> Message:
    return render(items, key=KEY, base_url=BASE_URL, now=now)


SINGLE = [
    (DOWN, "[DOWN] Shop checkout", "Shop checkout is down.", Level.FAILURE),
    (
        replace(DOWN, event_type=EventType.STILL_DOWN),
        "[STILL DOWN] Shop checkout",
        "Shop checkout is still down.",
        Level.FAILURE,
    ),
    (
        replace(DOWN, event_type=EventType.REMINDER),
        "[REMINDER] Shop checkout",
        "Shop checkout is still down and not acknowledged.",
        Level.FAILURE,
    ),
    (
        replace(DOWN, event_type=EventType.ACKNOWLEDGED, by="Kim"),
        "[ACKNOWLEDGED] Shop checkout",
        "Kim has acknowledged that Shop checkout is down.",
        Level.WARNING,
    ),
    (RECOVERED, "[RECOVERED] Shop checkout", "Shop checkout is up again.", Level.SUCCESS),
    (
        replace(RECOVERED, event_type=EventType.PAUSED),
        "[PAUSED] Shop checkout",
        "Shop checkout was paused while it was down.",
        Level.SUCCESS,
    ),
    (
        replace(RECOVERED, event_type=EventType.DELETED),
        "[DELETED] Shop checkout",
        "Shop checkout was deleted while it was down.",
        Level.SUCCESS,
    ),
    (
        replace(DOWN, event_type=EventType.FLAPPING),
        "[FLAPPING] Shop checkout",
        "Shop checkout is down again and flapping. The next alert is sent when it is stable.",
        Level.WARNING,
    ),
    (
        replace(RECOVERED, event_type=EventType.SETTLED),
        "[SETTLED] Shop checkout",
        "Shop checkout is stable again and up.",
        Level.SUCCESS,
    ),
    (replace(DOWN, event_type=EventType.SLOW), "[SLOW] Shop checkout", "Shop checkout is slow.", Level.WARNING),
    (
        replace(DOWN, event_type=EventType.CERTIFICATE, expires_at=at(3, 16, 47, day=28)),
        "[EXPIRES SOON] Shop checkout: certificate",
        "The certificate of Shop checkout expires in 7 days.",
        Level.WARNING,
    ),
    (
        replace(DOWN, event_type=EventType.DOMAIN, expires_at=at(1, 16, 47)),
        "[EXPIRED] Shop checkout: domain",
        "The domain registration of Shop checkout expired 2 hours ago.",
        Level.WARNING,
    ),
    (
        replace(DOWN, event_type=EventType.DNS_CHANGE),
        "[DNS CHANGED] Shop checkout",
        "The DNS records of Shop checkout have changed.",
        Level.WARNING,
    ),
    (
        replace(DOWN, event_type=EventType.TOO_OFTEN),
        "[TOO OFTEN] Shop checkout",
        "Shop checkout is pinged more often than expected.",
        Level.WARNING,
    ),
    (
        replace(DOWN, event_type=EventType.PARTIAL_OUTAGE),
        "[PARTIAL OUTAGE] Shop checkout",
        "Shop checkout fails from some of its locations.",
        Level.WARNING,
    ),
    (
        ON_CALL_GAP,
        "[ON-CALL GAP] Nights",
        "The on-call schedule Nights has a gap.",
        Level.WARNING,
    ),
    (
        Payload(EventType.POLICY_UNREACHABLE, at(3, 16), policy_id="esc_1", title="Backend", detail="No target."),
        "[REACHES NO ONE] Backend",
        "The escalation policy Backend reaches no one.",
        Level.WARNING,
    ),
    (
        replace(ON_CALL_GAP, event_type=EventType.ON_CALL, by="Kim"),
        "[ON CALL] Nights",
        "Kim is on call in Nights now.",
        Level.INFO,
    ),
    (
        replace(ON_CALL_GAP, event_type=EventType.ON_CALL_ENDED, by="Kim"),
        "[ON CALL] Nights",
        "The shift of Kim in Nights has ended.",
        Level.INFO,
    ),
    (
        LOCATION_OFFLINE,
        "[OFFLINE] Office",
        "The location Office is offline: nothing is checked from there.",
        Level.WARNING,
    ),
    (LOCATION_ONLINE, "[ONLINE] Office", "The location Office is online again.", Level.SUCCESS),
    (
        Payload(EventType.TEST, at(3, 16, 47)),
        "[TEST] Pulsekeeper",
        "This is a test. Alerts to this channel work.",
        Level.INFO,
    ),
]


def test_the_table_has_every_kind_of_news() -> None:
    assert {payload.event_type for payload, *_ in SINGLE} == set(EventType)
    assert set(REASONS) == set(ReasonCode)


@pytest.mark.parametrize(("payload", "subject", "headline", "level"), SINGLE, ids=lambda v: str(v)[:20])
def test_a_message_of_one(payload: Payload, subject: str, headline: str, level: Level) -> None:
    made = message(payload)
    assert (made.subject, made.level) == (subject, level)
    assert made.text.startswith(f"{headline}\n\n")
    assert f">{headline}</h1>" in made.html
    assert made.short.startswith(headline)
    assert made.webhook_body["event"] == payload.event_type
    link = INCIDENT if payload.incident_id else f"{BASE_URL}{payload.path}"
    assert made.webhook_body["link"] == link
    assert made.text.endswith(f"\n\n{link}\n")
    assert made.short.endswith(f"\n{link}")
    assert f'href="{link}"' in made.html
    assert len(made.short.splitlines()) == 2


@pytest.mark.parametrize(
    "payload", [payload for payload, *_ in SINGLE if payload.monitor_id], ids=lambda f: f.event_type
)
def test_a_group_names_each(payload: Payload) -> None:
    made = message(payload, replace(payload, monitor_id="mon_2", incident_id="inc_2", monitor="Blog"))
    tag = message(payload).subject.partition("]")[0] + "]"
    assert made.subject.startswith(f"{tag} 2 ")
    assert made.level == message(payload).level
    assert made.thread == KEY
    for text in (made.text, made.html, made.short):
        assert "Shop checkout" in text
        assert "Blog" in text
    assert [item["event"] for item in made.webhook_body["items"]] == [payload.event_type, payload.event_type]


@pytest.mark.parametrize(
    ("payload", "subject"),
    [
        (LOCATION_OFFLINE, "[OFFLINE] 2 locations are offline"),
        (LOCATION_ONLINE, "[ONLINE] 2 locations are online again"),
    ],
)
def test_a_group_of_locations(payload: Payload, subject: str) -> None:
    made = message(payload, replace(payload, location_id="loc_2", location="Attic"))
    assert made.subject == subject
    assert made.webhook_body["link"] == f"{BASE_URL}/locations"
    assert [item["location"]["name"] for item in made.webhook_body["items"]] == ["Office", "Attic"]
    assert [item["monitor"] for item in made.webhook_body["items"]] == [None, None]
    assert message(payload, DOWN).webhook_body["link"] == f"{BASE_URL}/incidents"


def test_a_location_that_is_online_again() -> None:
    offline = replace(LOCATION_OFFLINE, started_at=LOCATION_ONLINE.started_at)
    both = message(offline, LOCATION_ONLINE)
    assert both.subject == "[ONLINE] Office"
    assert both.short.startswith("The location Office is online again. It was offline for 3 min 12 s.\n")
    assert "None of" not in both.text
    assert both.thread == message(offline).thread == message(LOCATION_ONLINE).thread
    assert message(LOCATION_OFFLINE).thread != both.thread, "on-call services open another alert"


def test_a_location_cannot_forge_a_message() -> None:
    name = "Office\n\nDOWN: all @everyone <!channel> https://evil.example \u202e" + "x" * 100
    made = message(replace(LOCATION_OFFLINE, location=name))
    assert len(made.subject.splitlines()) == 1
    assert len(made.short.splitlines()) == 2
    for text in (made.short, made.text):
        assert "https://evil.example" not in text
        assert "\u202e" not in text
    assert "<!channel>" not in made.short
    assert "@everyone" not in made.short
    assert made.text.splitlines()[0].startswith("The location Office DOWN: all ")


def test_what_when_why_and_where_to_look() -> None:
    assert message(DOWN).text.splitlines()[:8] == [
        "Shop checkout is down.",
        "",
        "Since:   2026-11-21 03:12:05 UTC (4 min 42 s)",
        "Reason:  Unexpected status code",
        "Detail:  The status is 503; any from 200 to 399 was expected.",
        "Answer:  HTTP/1.1 503 Service Unavailable",
        "From:    198.51.100.7:443",
        "Issuer:  R11, Let's Encrypt, US",
    ]


def test_news_of_before_says_so() -> None:
    late = "Delayed: this was the state at 2026-11-21 03:16:45 UTC."
    assert late in message(DOWN, now=NOW + timedelta(hours=5)).text
    assert late in message(DOWN, now=NOW + timedelta(hours=5)).html
    assert late not in message(DOWN, now=NOW + timedelta(minutes=5)).text


def test_who_is_up_again_does_not_read_that_it_was_down() -> None:
    both = message(DOWN, RECOVERED)
    assert both.subject == "[RECOVERED] Shop checkout"
    assert both.thread == DOWN.incident_id
    assert [item["event"] for item in both.webhook_body["items"]] == ["down", "recovered"]


def test_a_group_counts_and_lists_the_gravest_first() -> None:
    made = samples.rendered("grouped")
    assert made.subject == "[DOWN] 5 monitors are down, 1 is slow, 1 recovered"
    tags = [line.split()[0] for line in made.text.splitlines()[2:9]]
    assert tags == ["DOWN"] * 5 + ["SLOW", "RECOVERED"]
    assert made.short.startswith(f"{made.subject[7:]}: Shop checkout, API Frankfurt, ")
    assert "and 2 more" in made.short


@pytest.mark.parametrize(
    ("news", "expected"),
    [
        ([EventType.DOWN] * 12 + [EventType.RECOVERED] * 3, "[DOWN] 12 monitors are down, 3 recovered"),
        ([EventType.DOWN, EventType.RECOVERED, EventType.RECOVERED], "[DOWN] 1 monitor is down, 2 recovered"),
        ([EventType.RECOVERED] * 2, "[RECOVERED] 2 monitors recovered"),
        ([EventType.STILL_DOWN, EventType.REMINDER], "[STILL DOWN] 2 monitors are still down"),
        (
            [EventType.CERTIFICATE, EventType.DOMAIN, EventType.DOMAIN],
            "[EXPIRES SOON] 1 certificate expires soon, 2 domains expire soon",
        ),
        (
            [EventType.CERTIFICATE, EventType.RECOVERED],
            "[EXPIRES SOON] 1 certificate expires soon, 1 monitor recovered",
        ),
    ],
)
def test_counts(news: list[EventType], expected: str) -> None:
    items = [
        replace(RECOVERED, event_type=what, monitor_id=f"mon_{n}", incident_id=f"inc_{n}")
        for n, what in enumerate(news)
    ]
    assert message(*items).subject == expected


def test_a_large_group_is_counted_and_not_listed() -> None:
    items = [replace(DOWN, monitor=f"Name {n}.", monitor_id=f"mon_{n}", incident_id=f"inc_{n}") for n in range(600)]
    made = message(*items)
    assert made.subject == "[DOWN] 600 monitors are down"
    for text in (made.text, made.html):
        assert len(re.findall(r"Name \d+\.", text)) == MOST_NAMED
        assert f"and {600 - MOST_NAMED} more" in text
    assert len(made.webhook_body["items"]) == MOST_ITEMS
    assert made.webhook_body["left_out"] == 600 - MOST_ITEMS
    assert len(made.short) < 400


def test_messages_of_one_incident_are_a_thread() -> None:
    assert {message(payload).thread for payload, *_ in SINGLE[:8]} == {DOWN.incident_id}
    expiry = replace(DOWN, event_type=EventType.CERTIFICATE, incident_id=None)
    assert message(expiry).thread == message(expiry, now=NOW + timedelta(days=7)).thread != DOWN.monitor_id


def test_each_dns_change_is_a_thread() -> None:
    """On-call services drop an alert while one with the same key is open, and alerts about changes are never closed."""
    slow = replace(DOWN, event_type=EventType.SLOW, incident_id=None)
    change = replace(slow, event_type=EventType.DNS_CHANGE)
    threads = [message(payload).thread for payload in (slow, change, replace(change, at=change.at + 1))]
    assert len({*threads, DOWN.monitor_id}) == 4
    assert message(change).thread == threads[1]


def test_the_payload() -> None:
    payload = message(DOWN).webhook_body
    assert json.loads(json.dumps(payload)) == payload
    assert payload["id"] == KEY
    assert payload["version"] == 1
    assert payload["monitor"] == {"id": DOWN.monitor_id, "name": "Shop checkout", "type": "http", "url": DOWN.url}
    assert payload["incident"] == {
        "id": DOWN.incident_id,
        "started_at": DOWN.started_at,
        "resolved_at": None,
        "reason_code": "http_failure",
        "detail": DOWN.detail,
    }


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 seconds"),
        (0.4, "0 seconds"),
        (0.9, "1 second"),
        (1, "1 second"),
        (59, "59 seconds"),
        (60, "1 minute"),
        (252, "4 min 12 s"),
        (3599, "59 min 59 s"),
        (3600, "1 hour"),
        (7500, "2 h 5 min"),
        (86_400, "1 day"),
        (273_600, "3 days 4 h"),
        (8_640_000, "100 days"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(timedelta(seconds=seconds)) == words


class Tags(HTMLParser):
    """The elements and links of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


HOSTILE = {
    "header injection": "Shop\r\nBcc: victim@example.com\r\n\r\nHello",
    "other line ends": "Shop\u2028Bcc:\u2029x\x85y\x0bz\x0c",
    "HTML": '<script>alert(1)</script><img src=x onerror="alert(1)">"\'><a href="https://evil.example">x</a>',
    "template": "{{ settings.SECRET_KEY }}{% debug %}{name}{expires}%(x)s",
    "bidi": "Shop \u202egnp.exe\u202c \u2066x\u2069 \u200f\u061c",
    "invisible": "Sh\u200bo\u00adp\ufeff\U000e0041",
    "control": "Shop\x00\x1b[31m\x07",
    "link": "Locked! Sign in at https://evil.example/login or www.evil.example or me@evil.example",
    "markdown link": "[Shop](https://evil.example) <https://evil.example|Shop>",
    "calling all": "@everyone @here <!channel> <@U012ABC>",
    "surrogate": "Shop \ud800",
    "long": "x" * 100_000,
    "long words": "long word " * 20_000,
    "combining": "Z" + "\u0301" * 5_000,
    "empty": " \u200b ",
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("grouped", [False, True])
def test_hostile_names_and_details(hostile: str, grouped: bool) -> None:
    evidence = {"status_line": hostile, "address": hostile, "tls_issuer": hostile, "body": hostile}
    payload = replace(DOWN, monitor=hostile, detail=hostile, reason_code=hostile)
    payload = replace(payload, evidence=evidence | {"facts": [["reply", hostile]]})
    x = "x" if hostile != HOSTILE["empty"] else ""
    harmless = replace(DOWN, monitor="Shop", detail=x, reason_code=x)
    harmless = replace(harmless, evidence=dict.fromkeys(evidence, x) | {"facts": [["reply", x]]})
    others = [replace(harmless, monitor_id="mon_2", incident_id="inc_2")] if grouped else []
    made = message(payload, *others)
    plain = message(harmless, *others)

    assert len(made.subject) <= 120
    assert made.subject.isprintable()
    for text in (made.text, made.html, made.short):
        assert len(text) < 12_000
        assert text.encode()
        assert not re.search(
            "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]", text
        )
        assert not re.search(r"https?://evil|www\.evil|evil\.example|me@evil", text)
    assert not re.search(r"[@<][^\s\u200b]", made.short)
    assert len(made.short.splitlines()) == 2
    assert made.text.count("Bcc") == len(re.findall(r"(?<!\n)Bcc", made.text))
    # The page has the same elements and links as for a harmless name.
    assert Tags(made.html).names == Tags(plain.html).names
    assert Tags(made.html).links == Tags(plain.html).links
    assert json.loads(json.dumps(made.webhook_body)) == made.webhook_body


def test_a_monitor_without_a_name_and_secrets_in_its_address() -> None:
    url = "https://shop.example/health?token=s3cret"
    made = message(replace(DOWN, monitor=url, url=url))
    assert made.subject == "[DOWN] https://shop.example/health?token=***"
    assert "s3cret" not in made.subject + made.text + made.html + made.short


def test_a_page_loads_nothing() -> None:
    for name in samples.SAMPLES:
        tags = Tags(samples.rendered(name).html)
        assert all(link.startswith(BASE_URL) for link in tags.links)
        assert not {"img", "script", "link", "iframe", "table", "form"} & set(tags.names)


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_the_samples_are_what_the_code_makes(name: str) -> None:
    for file, text in samples.files(name).items():
        assert (samples.FOLDER / file).read_text() == text, "run: python -m tests.generated"


def test_nothing_else_is_among_the_samples() -> None:
    made = {file for name in samples.SAMPLES for file in samples.files(name)}
    assert {path.name for path in samples.FOLDER.iterdir()} == made


def test_facts_survive_being_stored() -> None:
    assert msgspec.convert(json.loads(json.dumps(asdict(DOWN))), Payload) == DOWN
    assert datetime.fromtimestamp(DOWN.at / 1000, UTC) < NOW


def test_other_protocols_have_facts_and_no_link() -> None:
    evidence = {
        "address": "192.0.2.53:53",
        "facts": [["response code", "NOERROR"], ["size", "92 bytes"]],
        "body": "shop.example. 300 IN MX 10 parking.example.",
    }
    url = "dns://192.0.2.53/shop.example?type=MX"
    down = replace(DOWN, type="dns", url=url, monitor=url, reason_code="content_failure", evidence=evidence)
    made = message(down)
    lines = made.text.replace("\u200b", "").splitlines()
    assert "From:          192.0.2.53:53" in lines
    assert "Response code: NOERROR" in lines
    assert f"Address:       {url}" in lines, "the query of a DNS address is not secret"
    assert url not in made.text, "no program makes it a link"
    assert url not in made.html
    assert "Received:" in lines
    assert "Response body" not in made.text + made.html
    assert url not in made.short
