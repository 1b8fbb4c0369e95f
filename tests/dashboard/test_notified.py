"""The channels that the form of a monitor selects, and the sentence about who is notified of what."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from alerts.models import AlertChannel
from alerts.selectors import routes_of
from audit.models import Entry
from monitors.models import Monitor
from monitors.services import lock_owner
from projects import placement
from tests.alerts.test_concurrency import lock_during
from tests.dashboard.test_monitor_pages import errors_in, typed
from tests.dashboard.test_policies import make_policy
from tests.factories import ChannelFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import is_awaited, run_concurrently
from tests.processes.waiting import until

PREVIEW = "/monitors/notified"


def sentence(page: str) -> str:
    found = re.search(r'<span id="notified-text">(.*?)</span>', page, re.DOTALL)
    assert found is not None
    return unescape(found[1])


def boxes(page: str) -> dict[str, str]:
    """Return `fixed`, `checked` or nothing for each channel shown, by id."""
    found = re.findall(r'<input type="checkbox" id="id_channels_\w+" name="channels" value="(\w+)"([^>]*)>', page)
    return {key: "fixed" if "disabled" in rest else "checked" if "checked" in rest else "" for key, rest in found}


def get(web: Client, path: str = PREVIEW, **given: Any) -> str:
    answer = web.get(path, given)
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.fixture
def monitor(user: User) -> Monitor:
    return MonitorFactory(owner=user)


@pytest.fixture
def channel(user: User, monitor: Monitor) -> AlertChannel:
    """The channel has one chosen monitor, which it must keep."""
    made = ChannelFactory(owner=user, name="Pager", monitors="chosen", monitor_ids=[monitor.public_id])
    return AlertChannel.objects.get(pk=made.pk)  # without monitors that were read


@pytest.fixture(autouse=True)
def _no_other_channel(user: User) -> None:
    AlertChannel.objects.filter(owner=user).delete()


def test_the_sentence_says_who_is_notified_of_what(web: Client, user: User) -> None:
    assert sentence(get(web)) == "Nobody is notified."
    ChannelFactory(owner=user, name="Ops", topics=["down", "recovered", "slow"])
    ChannelFactory(owner=user, name="<Team>", topics=["recovered", "down", "slow", "too_often"])
    ChannelFactory(owner=user, name="Names", topics=["dns_change", "expiry"])
    ChannelFactory(owner=user, name="Off", topics=["down"], enabled=False)
    ChannelFactory(owner=user, name="Nothing", topics=[])
    ChannelFactory(name="Of a stranger", topics=["down"])
    page = get(web, type="http")
    assert sentence(page) == (
        "<Team> and Ops are notified when it goes down, it recovers, or it is slow; "
        "Names is notified when its certificate or domain expires soon."
    )
    assert set(boxes(page).values()) == {"fixed"}
    assert "Off" in page
    assert "Of a stranger" not in page
    assert "· for all monitors · Disabled" in page
    assert "its DNS records change" in sentence(get(web, type="dns"))
    heartbeat = sentence(get(web, type="heartbeat"))
    assert "<Team> is notified when it goes down, it recovers, or it runs too often" in heartbeat
    assert "slow" not in heartbeat
    assert "Names" not in heartbeat


def test_the_sentence_names_the_escalation_policy(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user)
    ChannelFactory(owner=user, project=project, name="Ops", topics=["down", "slow"])
    policy, own = make_policy(user, "Team", project), make_policy(user, "Own")
    project_id, foreign = project.public_id, make_policy(UserFactory(), "Foreign")
    slow = "Ops is notified when it is slow."
    decides = "decides who is notified when it goes down or it recovers"
    found = sentence(get(web, project_id=project_id, escalation_policy_id=own.public_id))
    assert found == f"The escalation policy “Own” {decides}; {slow}"
    plain = "Ops is notified when it goes down or it is slow."
    assert sentence(get(web, project_id=project_id, escalation_policy_id=foreign.public_id)) == plain
    assert sentence(get(web, escalation_policy_id=policy.public_id)) == "Nobody is notified."
    project.escalation_policy = policy
    project.save(update_fields=["escalation_policy"])
    assert sentence(get(web, project_id=project_id)) == f"The escalation policy “Team” {decides}; {slow}"


def test_a_selected_channel_is_in_the_sentence(web: Client, channel: AlertChannel) -> None:
    assert boxes(get(web)) == {channel.public_id: ""}
    page = get(web, channels=[channel.public_id, "chn_unknown"])
    assert boxes(page) == {channel.public_id: "checked"}
    assert sentence(page).startswith("Pager is notified when it goes down, ")
    assert boxes(get(web, "/monitors/new")) == {channel.public_id: ""}


def test_the_channels_are_those_of_the_place(web: Client, user: User) -> None:
    shop, other = ProjectFactory(owner=user), ProjectFactory(owner=user)
    inside = MonitorFactory(owner=user, project=shop)
    channels = {
        "all": ChannelFactory(owner=user),
        "of shop": ChannelFactory(owner=user, monitors="project", scope_project_id=shop.public_id),
        "of other": ChannelFactory(owner=user, monitors="project", scope_project_id=other.public_id),
        "shop's": ChannelFactory(project=shop),
        "shop's chosen": ChannelFactory(project=shop, monitors="chosen", monitor_ids=[inside.public_id]),
        "other's": ChannelFactory(project=other),
    }
    names = {channel.public_id: name for name, channel in channels.items()}

    def shown(**given: str) -> dict[str, str]:
        return {names[key]: state for key, state in boxes(get(web, **given)).items()}

    assert shown() == {"all": "fixed"}
    assert shown(project_id=shop.public_id) == {
        "all": "fixed", "of shop": "fixed", "shop's": "fixed", "shop's chosen": "",
    }  # fmt: skip
    assert shown(project_id=other.public_id) == {"all": "fixed", "of other": "fixed", "other's": "fixed"}
    for unknown in (ProjectFactory().public_id, "\0"):
        assert shown(project_id=unknown) == {"all": "fixed"}
    page = get(web, f"/monitors/{inside.public_id}/edit")
    checked = {key for key, state in boxes(page).items() if state}
    routes = routes_of([inside.pk])[inside.pk]
    assert checked == set(AlertChannel.objects.filter(pk__in=routes).values_list("public_id", flat=True))
    assert "shop's chosen" in {names[key] for key in checked}


def test_a_member_sees_their_own_channels_for_a_monitor_of_another_owner(web: Client, user: User) -> None:
    owner = UserFactory()
    shop = ProjectFactory(owner=owner, member=user)
    monitor = MonitorFactory(owner=owner, project=shop)
    everything = ChannelFactory(owner=user, name="Mine")
    chosen = ChannelFactory(owner=user, name="Chosen", monitors="chosen", monitor_ids=[monitor.public_id])
    page = get(web, f"/monitors/{monitor.public_id}/edit")
    assert boxes(page) == {chosen.public_id: "checked"}, "the channel for all monitors has those of its owner only"
    assert everything.name not in sentence(page)


def test_a_new_monitor_joins_the_selected_channels(web: Client, user: User, channel: AlertChannel) -> None:
    answer = web.post("/monitors/new", typed(name="New", channels=[channel.public_id]))
    assert errors_in(answer.content.decode()) == []
    assert channel.monitors.filter(name="New").exists()
    assert Entry.objects.filter(action="channel.updated", target_id=channel.public_id).exists()
    again = web.post("/monitors/new", typed(name="New", channels=[channel.public_id]))
    assert again.status_code == 302
    assert channel.monitors.count() == 2, "the same form makes one monitor"


def test_an_edit_changes_what_its_user_changed(web: Client, user: User, channel: AlertChannel) -> None:
    monitor = MonitorFactory(owner=user)
    path = f"/monitors/{monitor.public_id}/edit"
    key = channel.public_id
    assert web.post(path, typed(channels=[key], name=monitor.name, url=monitor.url)).status_code == 302
    assert channel.monitors.filter(pk=monitor.pk).exists()
    page = get(web, path)
    assert f'name="channels_before" value="{key}"' in page
    # A form from before the selection does not undo it.
    assert web.post(path, typed(channels_before="", name="Renamed", url=monitor.url)).status_code == 302
    assert channel.monitors.filter(pk=monitor.pk).exists()
    answer = web.post(path, typed(channels_before=key, name="Renamed", url=monitor.url), follow=True)
    assert "Renamed is saved." in answer.content.decode()
    assert not channel.monitors.filter(pk=monitor.pk).exists()


@pytest.mark.parametrize("case", ["last", "foreign", "of a project", "limit"])
def test_what_a_channel_refuses_saves_nothing(
    web: Client, user: User, channel: AlertChannel, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monitor = channel.monitors.get()
    given = {"name": "Renamed", "url": monitor.url}
    if case == "last":
        given["channels_before"] = channel.public_id
        reason = "Notifications: Pager has no other monitor; delete or disable the channel instead."
    elif case == "foreign":
        given["channels"] = ChannelFactory().public_id
        reason = "Notifications: Select a valid choice"
    elif case == "of a project":
        shop = ProjectFactory(owner=user)
        inside = MonitorFactory(owner=user, project=shop)
        chosen = ChannelFactory(project=shop, name="Shop", monitors="chosen", monitor_ids=[inside.public_id])
        given["channels"] = chosen.public_id
        reason = "Notifications: Shop cannot choose this monitor."
    else:
        monkeypatch.setattr(placement, "MAX_LINKS", 1)
        monitor = MonitorFactory(owner=user)
        given["channels"] = channel.public_id
        reason = "An account can select 1 monitors"
    page = web.post(f"/monitors/{monitor.public_id}/edit", typed(**given)).content.decode()
    (shown,) = errors_in(page)
    assert shown.startswith(reason)
    monitor.refresh_from_db()
    assert monitor.name != "Renamed"
    assert channel.monitors.count() == 1


def test_a_monitor_leaves_the_project_of_its_channel(web: Client, user: User) -> None:
    shop = ProjectFactory(owner=user)
    monitor = MonitorFactory(owner=user, project=shop)
    channel = ChannelFactory(project=shop, monitors="chosen", monitor_ids=[monitor.public_id])
    given = typed(project_id="", channels_before=channel.public_id, url=monitor.url)
    assert web.post(f"/monitors/{monitor.public_id}/edit", given).status_code == 302
    monitor.refresh_from_db()
    assert monitor.project is None
    assert routes_of([monitor.pk]) == {}


def test_a_channel_that_is_gone_loses_no_input(web: Client, user: User, channel: AlertChannel) -> None:
    monitor = channel.monitors.get()
    key = channel.public_id
    channel.delete()
    path, given = f"/monitors/{monitor.public_id}/edit", typed(channels_before=key, name="Renamed", url=monitor.url)
    page = web.post(path, given | {"channels": [key]}).content.decode()
    assert errors_in(page)[0].startswith("Notifications: ")
    assert 'value="Renamed"' in page
    assert web.post(path, given).status_code == 302


def test_a_copy_selects_the_channels_of_its_source(web: Client, channel: AlertChannel) -> None:
    page = get(web, "/monitors/new", **{"from": channel.monitors.get().public_id})
    assert boxes(page) == {channel.public_id: "checked"}
    assert 'name="channels_before" value' not in page


def test_a_monitor_of_another_account_is_not_found(web: Client) -> None:
    assert web.get(PREVIEW, {"monitor": MonitorFactory().public_id}).status_code == 404
    assert Client().get(PREVIEW).status_code == 302


@pytest.mark.django_db(transaction=True)
def test_two_monitors_join_a_channel_at_once() -> None:
    user = UserFactory()
    first = MonitorFactory(owner=user)
    made = ChannelFactory(owner=user, monitors="chosen", monitor_ids=[first.public_id])
    channel = AlertChannel.objects.get(pk=made.pk)

    def send(name: str) -> int:
        web = Client()
        web.force_login(user)
        given = typed(name=name, form_key=name, channels=[channel.public_id])
        return web.post("/monitors/new", given).status_code

    assert set(run_concurrently(lambda: send("one"), lambda: send("two"))) == {302}
    assert set(channel.monitors.values_list("name", flat=True)) == {first.name, "one", "two"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_new", [True, False])
def test_owners_are_locked_in_one_order(is_new: bool) -> None:
    """Two users who select their own channels in each other's projects at once would otherwise deadlock."""
    user, owner = UserFactory(), UserFactory()
    project = ProjectFactory(owner=owner, member=user)
    monitor = MonitorFactory(owner=owner, project=project)
    ids = {"monitor_ids": [monitor.public_id]}
    theirs = ChannelFactory(project=project, monitors="chosen", **ids)
    own = ChannelFactory(owner=user, monitors="chosen", **ids)
    other = MonitorFactory(owner=owner, project=project)
    web = Client()
    web.force_login(user)
    given = typed(url=other.url, project_id=project.public_id, channels=[theirs.public_id, own.public_id])
    path = "/monitors/new" if is_new else f"/monitors/{other.public_id}/edit"
    people = [User.objects.filter(pk=person.pk) for person in (user, owner)]
    lock_during(lambda: web.post(path, given), *people)
    channels = AlertChannel.objects.filter(pk__in=[theirs.pk, own.pk])
    assert [channel.monitors.count() for channel in channels] == [2, 2]


def test_more_channels_take_no_more_queries(web: Client, user: User, channel: AlertChannel) -> None:
    def count() -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            get(web, "/monitors/new")
        return len(queries)

    before = count()
    for index in range(5):
        ChannelFactory(owner=user, name=f"More {index}")
    assert count() == before


@pytest.mark.django_db(transaction=True)
def test_a_concurrently_deleted_channel_loses_no_input(user: User, channel: AlertChannel) -> None:
    monitor = channel.monitors.get()
    web = Client()
    web.force_login(user)
    given = typed(name="Renamed", url=monitor.url, channels=[channel.public_id])
    with ThreadPoolExecutor(1) as thread:
        with transaction.atomic():
            lock_owner(user)
            channel.delete()
            saving = thread.submit(web.post, f"/monitors/{monitor.public_id}/edit", given)
            until(is_awaited, 30, "the owner is awaited")
        page = saving.result(30).content.decode()
    assert errors_in(page) == ["Notifications: One of these channels no longer exists."]
    assert 'value="Renamed"' in page
