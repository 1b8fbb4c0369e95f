"""factory_boy factories. If production creates a row by a service, so does its factory: only valid rows exist."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import factory
from allauth.account.models import EmailAddress
from django.db.models import Model
from factory.django import DjangoModelFactory

from accounts.models import Plan, User
from accounts.services import create_account
from alerts.events import EventType, Payload
from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.services import create_channel
from checks.results.models import CheckResult
from checks.spec import Verdict
from connectors.models import Connector
from core.clock import to_ms
from incidents.models import Incident
from monitors.models import Monitor, PingGap, SchedulerGap, StatusChange
from monitors.recording import record
from monitors.services import FIRST_CLAIM, create_monitor
from projects.access import Caller, owner_of
from projects.models import Membership, Project, Role
from projects.services import create_project
from tests.helpers import NOON, PASSWORD, check_record

BUILT_IN_PLANS: dict[str, dict[str, int | None]] = {
    "free": {"min_interval_sec": 300, "monitor_limit": 50, "location_limit": 1},
    "pro": {"min_interval_sec": 60, "monitor_limit": 1000, "location_limit": 10},
    Plan.LOCAL: {"min_interval_sec": 10, "default_interval_sec": 60, "monitor_limit": None},
}

ModelType = TypeVar("ModelType", bound=Model)


class ModelFactory(DjangoModelFactory[ModelType]):
    class Meta:
        abstract = True
        skip_postgeneration_save = True

    if TYPE_CHECKING:

        def __new__(cls, **kwargs: Any) -> ModelType: ...  # type: ignore[misc]  # as its metaclass does


class PlanFactory(ModelFactory[Plan]):
    """The `name` of a built-in plan returns that plan, also after a transactional test has truncated the table."""

    class Meta:
        model = Plan
        django_get_or_create = ("name",)

    name = factory.Sequence(lambda number: f"plan-{number}")
    min_interval_sec = factory.LazyAttribute(lambda plan: _built_in(plan, "min_interval_sec", 60))
    default_interval_sec = factory.LazyAttribute(lambda plan: _built_in(plan, "default_interval_sec", None))
    monitor_limit = factory.LazyAttribute(lambda plan: _built_in(plan, "monitor_limit", 1000))
    location_limit = factory.LazyAttribute(lambda plan: _built_in(plan, "location_limit", 10))


def _built_in(plan: Plan, column: str, default: int | None) -> int | None:
    return BUILT_IN_PLANS.get(plan.name, {}).get(column, default)


class UserFactory(ModelFactory[User]):
    class Meta:
        model = User

    class Params:
        unconfirmed = factory.Trait(verified=False, plan=factory.SubFactory(PlanFactory, name="free"))

    email = factory.Sequence(lambda number: f"user{number}@example.com")
    password = PASSWORD
    plan = factory.SubFactory(PlanFactory, name="pro")
    verified = True

    @classmethod
    def _create(cls, model_class: type[User], *args: Any, **given: Any) -> User:
        plan, password, verified = given.pop("plan"), given.pop("password"), given.pop("verified")
        user = create_account(password=PASSWORD, plan=plan.name, **given)
        if password != PASSWORD:  # which may be weaker than `create_account` allows
            user.set_password(password)
            user.save(update_fields=["password"])
        if not verified:
            EmailAddress.objects.filter(user=user).update(verified=False)
        return user


class MembershipFactory(ModelFactory[Membership]):
    class Meta:
        model = Membership

    project = factory.SubFactory("tests.factories.ProjectFactory")
    user = factory.SubFactory(UserFactory)
    role = Role.MEMBER


class ProjectFactory(ModelFactory[Project]):
    """A project of `owner`; `admin=user` and `member=user` add members."""

    class Meta:
        model = Project

    owner = factory.SubFactory(UserFactory)
    name = "Shop"

    @classmethod
    def _create(cls, model_class: type[Project], *args: Any, **given: Any) -> Project:
        return create_project(Caller(given.pop("owner")), now=NOON, **given)

    @factory.post_generation
    def admin(self: Any, create: bool, user: User | None, **kwargs: Any) -> None:
        if user is not None:
            MembershipFactory(project=self, user=user, role=Role.ADMIN)

    @factory.post_generation
    def member(self: Any, create: bool, user: User | None, **kwargs: Any) -> None:
        if user is not None:
            MembershipFactory(project=self, user=user)


class MonitorFactory(ModelFactory[Monitor]):
    """A monitor as after POST and before its first check; `up`, `slow` and `down` record one.

    `owner` creates it, by default the project's owner. Other arguments are fields of the API.
    """

    class Meta:
        model = Monitor

    class Params:
        heartbeat = factory.Trait(type="heartbeat", url="")
        scheduler = factory.Trait(type="scheduler")
        up = factory.Trait(first=Verdict.UP)
        slow = factory.Trait(first=Verdict.SLOW)
        down = factory.Trait(first=Verdict.DOWN)

    project = None
    owner = factory.Maybe(
        "project",
        yes_declaration=factory.LazyAttribute(lambda monitor: owner_of(monitor.project)),
        no_declaration=factory.SubFactory(UserFactory),
    )
    url = "http://127.0.0.1:9/"
    created_at = NOON
    first: Verdict | None = None

    @classmethod
    def _create(cls, model_class: type[Monitor], *args: Any, **given: Any) -> Monitor:
        owner, project = given.pop("owner"), given.pop("project")
        now, first = given.pop("created_at"), given.pop("first")
        if project is not None:
            given["project_id"] = project.public_id
        monitor = create_monitor(Caller(owner), given, now=now)
        if first is not None:
            record([check_record(monitor, claim=FIRST_CLAIM, verdict=first, at=now)], now=now)
        return monitor


class ChannelFactory(ModelFactory[AlertChannel]):
    """By default a webhook, which needs no consent. Other arguments are fields of the API."""

    class Meta:
        model = AlertChannel

    project = None
    owner = factory.Maybe(
        "project",
        yes_declaration=factory.LazyAttribute(lambda channel: owner_of(channel.project)),
        no_declaration=factory.SubFactory(UserFactory),
    )
    kind = "webhook"
    created_at = NOON

    @classmethod
    def _create(cls, model_class: type[AlertChannel], *args: Any, **given: Any) -> AlertChannel:
        owner, project = given.pop("owner"), given.pop("project")
        now = given.pop("created_at")
        if project is not None:
            given["project_id"] = project.public_id
        if given["kind"] == "webhook":
            given.setdefault("url", "http://127.0.0.1:9/hook")
        return create_channel(Caller(owner), given, now=now)[0]


class DeliveryFactory(ModelFactory[Delivery]):
    """A pending message as the outbox creates it; `items`: their number, `monitor`: the monitor of all items."""

    class Meta:
        model = Delivery

    class Params:
        sent = factory.Trait(state=Delivery.State.SENT)
        dead = factory.Trait(state=Delivery.State.DEAD)
        done = factory.LazyAttribute(lambda delivery: delivery.state in ("sent", "dead"))

    channel = factory.SubFactory(ChannelFactory)
    account = factory.SelfAttribute("channel.owner_id")
    created_at = NOON
    state = Delivery.State.WAITING
    next_try_at = factory.SelfAttribute("created_at")
    give_up_at = factory.LazyAttribute(lambda delivery: delivery.created_at + timedelta(hours=24))
    attempts = factory.Maybe("done", 3, 0)
    done_at = factory.Maybe("done", factory.SelfAttribute("give_up_at"), None)
    last_error = factory.LazyAttribute(
        lambda delivery: "The receiver answered with status 503." if delivery.state == "dead" else None
    )

    items = 1
    monitor: Monitor | None = None

    @classmethod
    def _create(cls, model_class: type[Delivery], *args: Any, **given: Any) -> Delivery:
        items, monitor = given.pop("items"), given.pop("monitor")
        delivery = Delivery.objects.create(**given)
        payload = Payload(event_type=EventType.DOWN, at=to_ms(delivery.created_at))
        if monitor is not None:
            payload = replace(payload, monitor_id=monitor.public_id, monitor=monitor.name)
        DeliveryItem.objects.bulk_create(
            DeliveryItem(
                delivery=delivery,
                channel=delivery.channel,
                source=f"test {delivery.pk} {number}",
                payload=asdict(payload),
                at=delivery.created_at,
            )
            for number in range(items)
        )
        return delivery


class ConnectorFactory(ModelFactory[Connector]):
    """A linked connector, with random tokens."""

    class Meta:
        model = Connector

    user = factory.SubFactory(UserFactory)
    provider = "vercel"
    created_at = NOON
    meta = "Shop Ltd"
    tokens = factory.Sequence(lambda number: {"access_token": f"access-{number}"})


class IncidentFactory(ModelFactory[Incident]):
    """An outage of `monitor`, or with `monitor=None`, `owner` and `name` an incident that people declared."""

    class Meta:
        model = Incident

    class Params:
        recovered = factory.Trait(
            resolution=Incident.Resolution.RECOVERED,
            resolved_at=factory.LazyAttribute(lambda incident: incident.started_at + timedelta(minutes=9)),
        )

    monitor = factory.SubFactory(MonitorFactory)
    owner = factory.SelfAttribute("monitor.owner")
    project = factory.SelfAttribute("monitor.project", default=None)
    monitor_public_id = factory.SelfAttribute("monitor.public_id", default="")
    name = factory.SelfAttribute("monitor.name")
    started_at = NOON


class StatusChangeFactory(ModelFactory[StatusChange]):
    class Meta:
        model = StatusChange

    monitor = factory.SubFactory(MonitorFactory)
    at = NOON
    before = "up"
    after = "down"


class PingGapFactory(ModelFactory[PingGap]):
    class Meta:
        model = PingGap

    started_at = NOON
    held_until = NOON + timedelta(hours=1)


class SchedulerGapFactory(ModelFactory[SchedulerGap]):
    class Meta:
        model = SchedulerGap

    started_at = NOON
    ended_at = NOON


class CheckResultFactory(ModelFactory[CheckResult]):
    class Meta:
        model = CheckResult

    monitor = factory.SubFactory(MonitorFactory)
    claim = factory.Sequence(lambda number: number + 1)
    checked_at = NOON
    verdict = Verdict.UP

    @classmethod
    def _adjust_kwargs(cls, **columns: Any) -> dict[str, Any]:
        monitor: Monitor = columns.pop("monitor")  # no foreign key
        return columns | {"monitor_id": monitor.pk}
