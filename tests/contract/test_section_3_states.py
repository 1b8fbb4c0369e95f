"""Section 3, "States and transitions", each row of its table driven through the API with a real worker and target.

Elsewhere: "a failed check opens an incident; alerts sent unless muted" is tested in tests/incidents and tests/alerts;
the transitions that are "not shown" in tests/monitors/test_state_machine.py and
tests/monitors/test_heartbeat_machine.py; "Token lifecycle" in test_section_5_authentication.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from core.clock import to_ms, utc_now
from tests.api.client import Api
from tests.contract.driving import check_now, mute_ends, pings_stop_for, shown
from tests.factories import MonitorFactory
from tests.site import Site


def create(api: Api, site: Site, path: str = "/ok", **given: Any) -> Any:
    made = api.post("/v1/monitors", {"url": site.url(path), **given})
    assert made.status == 201
    return made.json


@pytest.mark.parametrize(
    ("path", "slow_ms", "status"), [("/ok", 1500, "up"), ("/ok", 0, "slow"), ("/status/500", 1500, "down")]
)
def test_status_null_until_the_first_check_completes_then_any_of_three(
    live: Api, site: Site, path: str, slow_ms: int, status: str
) -> None:
    """status null | first check completes | any result | up, slow or down | status_since set"""
    before = to_ms(utc_now())
    monitor = create(live, site, path, slow_ms=slow_ms)
    assert monitor["status"] == status
    assert before <= monitor["status_since"] <= to_ms(utc_now())


def test_status_and_status_since_are_null_before_the_first_check(api: Api, user: Any) -> None:
    """`status` values: up, slow, down; null until the first check completes."""
    monitor = shown(api, MonitorFactory(owner=user).public_id)
    assert (monitor["status"], monitor["status_since"]) == (None, None)


def test_any_state_to_slow(live: Api, site: Site) -> None:
    """any | check with latency >= slow_ms | check otherwise passes | slow"""
    monitor = create(live, site)
    path = f"/v1/monitors/{monitor['id']}"
    live.patch(path, {"slow_ms": 0})
    slow = check_now(live, monitor["id"])
    assert (monitor["status"], slow["status"]) == ("up", "slow"), "from up"
    assert slow["status_since"] > monitor["status_since"]
    still = check_now(live, monitor["id"])
    assert (still["status"], still["status_since"]) == ("slow", slow["status_since"]), "status_since stays"
    live.patch(path, {"slow_ms": 60_000})
    assert check_now(live, monitor["id"])["status"] == "up", "and back"


def test_a_slow_check_that_does_not_pass_is_no_slow_one(live: Api, site: Site) -> None:
    """any | check with latency >= slow_ms | check otherwise passes | slow"""
    assert create(live, site, "/status/500", slow_ms=0)["status"] == "down"


@pytest.mark.parametrize("slow_ms", [0, 60_000], ids=["slow", "up"])
def test_up_or_slow_to_down_when_the_count_reaches_fail_threshold(live: Api, site: Site, slow_ms: int) -> None:
    """up or slow | consecutive failed checks | count reaches fail_threshold | down"""
    monitor = create(live, site, slow_ms=slow_ms, fail_threshold=2)
    first = monitor["status"]
    site.stop()
    failing = check_now(live, monitor["id"])
    assert (failing["status"], failing["status_since"]) == (first, monitor["status_since"])
    assert failing["last_checked_at"] > monitor["last_checked_at"]
    down = check_now(live, monitor["id"])
    assert (down["status"], down["status_since"]) == ("down", down["last_checked_at"])
    site.start()
    assert check_now(live, monitor["id"])["status"] == first, "recover_threshold is 1"


def test_failed_checks_that_are_not_consecutive_do_not_add_up(live: Api, site: Site) -> None:
    """up or slow | consecutive failed checks | count reaches fail_threshold | down"""
    monitor = create(live, site, fail_threshold=2)
    for _ in range(3):
        site.stop()
        assert check_now(live, monitor["id"])["status"] == "up"
        site.start()
        assert check_now(live, monitor["id"])["status"] == "up"


def test_recover_threshold(live: Api, site: Site) -> None:
    """Recovery from down (how recover_threshold applies) […]: not shown."""
    monitor = create(live, site, "/ok", recover_threshold=2, fail_threshold=1)
    site.stop()
    down = check_now(live, monitor["id"])
    assert down["status"] == "down"
    site.start()
    assert check_now(live, monitor["id"])["status_since"] == down["status_since"]
    assert check_now(live, monitor["id"])["status"] == "up"


def test_heartbeat_up_to_down(live: Api) -> None:
    """heartbeat up | no ping arrives | interval_sec plus grace_sec elapsed since last ping | down"""
    monitor = live.post("/v1/monitors", {"type": "heartbeat", "interval_sec": 60, "grace_sec": 30}).json
    assert monitor["status"] is None, "until its first ping"
    ping = f"/v1/heartbeats/{monitor['id']}/ping"
    Api().post(ping)
    up = shown(live, monitor["id"])
    assert (up["status"], up["status_since"]) == ("up", up["last_ping_at"])
    assert pings_stop_for(live, monitor["id"], seconds=85)["status"] == "up", "within its grace"
    down = pings_stop_for(live, monitor["id"], seconds=6)
    assert (down["status"], down["status_since"]) == ("down", down["last_ping_at"] + 90_000)
    Api().post(ping)
    assert shown(live, monitor["id"])["status"] == "up"


def test_enabled_true_to_paused_and_back(live: Api, site: Site) -> None:
    """enabled true | PATCH with enabled false | enabled false (paused); enabled false | PATCH with enabled true"""
    monitor = create(live, site)
    path = f"/v1/monitors/{monitor['id']}"
    paused = live.patch(path, {"enabled": False}).json
    assert (paused["enabled"], paused["status"]) == (False, "up"), "pausing keeps the status"
    requests = site.requests
    site.stop()
    resumed = live.patch(path, {"enabled": True}).json
    assert (resumed["enabled"], site.requests) == (True, requests), "no check while paused"
    assert check_now(live, monitor["id"])["status"] == "down", "the next result counts as a first one"


def test_muted_failures_lead_nowhere_until_the_mute_ends(live: Api, site: Site) -> None:
    """not muted | POST mute with minutes > 0 | muted (muted_until set) | down-detection […] suppressed"""
    monitor = create(live, site, fail_threshold=1)
    muted = live.post(f"/v1/monitors/{monitor['id']}/mute", {"minutes": 5}).json
    assert muted["muted_until"] > to_ms(utc_now())
    site.stop()
    for _ in range(3):
        assert check_now(live, monitor["id"])["status"] == "up"
    mute_ends(monitor["id"])
    down = check_now(live, monitor["id"])
    assert (down["status"], down["muted_until"]) == ("down", None), "`muted_until` is null or a future time"


def test_mute_with_0_clears(live: Api, site: Site) -> None:
    """muted | POST mute with minutes 0 | not muted | muted_until cleared"""
    monitor = create(live, site, fail_threshold=1)
    path = f"/v1/monitors/{monitor['id']}/mute"
    live.post(path, {"minutes": 5})
    assert live.post(path, {"minutes": 0}).json["muted_until"] is None
    site.stop()
    assert check_now(live, monitor["id"])["status"] == "down"


def test_a_muted_heartbeat(live: Api) -> None:
    """down-detection and alerts suppressed until muted_until"""
    monitor = live.post("/v1/monitors", {"type": "heartbeat", "interval_sec": 60, "grace_sec": 0}).json
    Api().post(f"/v1/heartbeats/{monitor['id']}/ping")
    live.post(f"/v1/monitors/{monitor['id']}/mute", {"minutes": 5})
    assert pings_stop_for(live, monitor["id"], seconds=100)["status"] == "up"
    before = to_ms(utc_now())
    live.post(f"/v1/monitors/{monitor['id']}/mute", {"minutes": 0})
    down = pings_stop_for(live, monitor["id"], seconds=1)
    assert down["status"] == "down"
    assert down["status_since"] >= before, "never before the mute was cleared"
