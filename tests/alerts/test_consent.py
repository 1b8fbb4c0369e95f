"""Consent to alerts by e-mail: giving it, what ends it, and that no e-mail follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core import mail
from django.db import transaction
from django.test import Client

from accounts.models import User
from accounts.services import AddressChange, delete_account, record_address, set_address
from alerts.models import AlertChannel, Delivery
from alerts.outbox import OUTBOX
from alerts.services import create_channel
from core.clock import utc_now
from projects.access import Caller
from projects.members import remove_member
from projects.models import Membership, Project
from tests.api.client import Api
from tests.factories import ChannelFactory, DeliveryFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON, run_concurrently

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _own_content_types() -> Iterator[None]:
    """The admin needs them. They go with the test, and Django caches them."""
    ContentType.objects.clear_cache()
    yield
    ContentType.objects.clear_cache()


@pytest.fixture
def member(transactional_db: None) -> User:
    return UserFactory()


@pytest.fixture
def project(member: User) -> Project:
    return ProjectFactory(owner=UserFactory(), member=member)


def owner_of(project: Project) -> User:
    return User.objects.get(memberships__project=project, memberships__role="owner")


def leave(project: Project, member: User, *, by: User | None = None) -> None:
    place = Membership.objects.get(project=project, user=member)
    remove_member(Caller(by or member), project.public_id, place.public_id, now=utc_now())


def deactivate(project: Project, member: User) -> None:
    admin = UserFactory()
    User.objects.filter(pk=admin.pk).update(is_staff=True, is_superuser=True)
    staff = Client()
    staff.force_login(admin)
    fields = {"email": member.email, "plan": str(member.plan_id)}
    assert staff.post(f"/admin/accounts/user/{member.pk}/change/", fields).status_code == 302
    assert not User.objects.get(pk=member.pk).is_active


def delete_for_good(project: Project, member: User) -> None:
    delete_account(member)


def move(project: Project, member: User) -> None:
    before = member.email
    moved = copy(member)
    with transaction.atomic():
        moved.email = f"moved.{before}"
        moved.save(update_fields=["email"])
        set_address(moved)
        record_address(AddressChange(moved, before, clicked=True))


ENDS = {
    "left": leave,
    "removed": lambda project, member: leave(project, member, by=owner_of(project)),
    "deleted": delete_for_good,
    "deactivated": deactivate,
}


def send_all() -> list[str]:
    while OUTBOX.send_next():
        pass
    return [address for sent in mail.outbox for address in sent.to]


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_mails_to_a_member_end_with_the_place_and_the_account(
    project: Project, member: User, end: Callable[[Project, User], None]
) -> None:
    theirs, others = (
        ChannelFactory(owner=user, kind="email", address=user.email, project=project)
        for user in (member, owner_of(project))
    )
    assert theirs.confirmed_at
    for channel in (theirs, others):
        DeliveryFactory(channel=channel)
    end(project, member)
    assert send_all() == [owner_of(project).email], "what was queued does not leave either"
    theirs.refresh_from_db()
    others.refresh_from_db()
    assert (bool(theirs.confirmed_at), bool(others.confirmed_at)) == (False, True)


def test_whoever_left_gets_no_queued_news_of_the_project(project: Project, member: User) -> None:
    shared = MonitorFactory(owner=owner_of(project), project=project, name="Shared")
    own = MonitorFactory(owner=member, name="Own")
    channel = AlertChannel.objects.get(owner=member)
    mixed, foreign = (DeliveryFactory(channel=channel, monitor=shared, created_at=NOON) for _ in range(2))
    mixed.items.create(
        channel=channel,
        source="own",
        at=NOON,
        payload=DeliveryFactory(channel=channel, monitor=own).items.get().payload,
    )
    leave(project, member)
    send_all()
    texts = [str(sent.body) for sent in mail.outbox]
    assert len(texts) == 2
    assert all("Own" in text and "Shared" not in text for text in texts)
    assert not Delivery.objects.filter(pk=foreign.pk).exists()


def test_alerts_of_ones_own_follow_to_an_address_that_was_clicked(project: Project, member: User) -> None:
    before = member.email
    channels = [
        AlertChannel.objects.get(owner=member),
        ChannelFactory(owner=member, kind="email", address=before, project=project),
    ]
    for clicked, email in ((True, "clicked@example.com"), (False, "typed@example.com")):
        before, member.email = member.email, email
        with transaction.atomic():
            member.save(update_fields=["email"])
            record_address(AddressChange(member, before, clicked=clicked))
        for channel in channels:
            channel.refresh_from_db()
            assert channel.config == {"address": email}
            assert channel.hint == f"{email[0]}…@example.com"
            assert bool(channel.confirmed_at) is clicked
    assert [sent.to for sent in mail.outbox] == [["typed@example.com"]] * 2, "staff typed it: it is asked"


def test_a_member_who_is_removed_while_they_enter_their_address(project: Project, member: User) -> None:
    given = {"kind": "email", "address": member.email, "project_id": project.public_id}
    run_concurrently(
        lambda: create_channel(Caller(member), given, now=utc_now()),
        lambda: leave(project, member, by=owner_of(project)),
    )
    assert not AlertChannel.objects.filter(project=project, confirmed_at__isnull=False).exists()


@pytest.mark.parametrize("change", [deactivate, delete_for_good, move])
def test_an_account_that_ends_or_moves_while_its_person_enters_the_address(
    project: Project, member: User, change: Callable[[Project, User], None]
) -> None:
    before = member.email
    given = {"kind": "email", "address": before, "project_id": project.public_id}
    run_concurrently(lambda: create_channel(Caller(member), given, now=utc_now()), lambda: change(project, member))
    confirmed = AlertChannel.objects.filter(project=project, confirmed_at__isnull=False)
    assert before not in [channel.config["address"] for channel in confirmed]


def test_members_agree_for_themselves_only(project: Project, member: User) -> None:
    """Neither membership, nor ownership of the project, nor the member's own token counts as consent."""
    owner = owner_of(project)
    path = "/v1/alert-channels"

    def add(api: Api, address: str) -> bool:
        body = {"kind": "email", "address": address, "project_id": project.public_id}
        return api.post(path, body).json["confirmed_at"] is not None

    assert not add(Api.signed_in(owner), member.email)
    assert not add(Api.signed_in(member), owner.email)
    assert not add(Api.with_token(member, project), member.email)
    assert [sent.to for sent in mail.outbox] == [[member.email], [owner.email], [member.email]]
    assert add(Api.signed_in(member), member.email)
    assert len(mail.outbox) == 3
