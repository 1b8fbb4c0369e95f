"""Changes of alert channels. Each function is one transaction; `projects.access` decides who may.

Locks are taken in one order: the caller's account, if an e-mail address is set; the states of chosen monitors, as
for changes of monitors; the project, or the one that the channel is limited to; then the owner, for the quota, or the
channel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models.fields.json import KT

from accounts.models import User
from accounts.services import GONE, addresses_of, is_verified
from alerts import confirmation, templates
from alerts.events import DEFAULT_TOPICS, Topic
from alerts.models import AlertChannel, Delivery, DeliveryItem
from alerts.outbox import OUTBOX
from alerts.selectors import get_channel, get_delivery, list_channels, sends_to
from alerts.transports import KINDS, settings_by_name
from alerts.transports.base import ChannelKind
from audit.actions import Action
from core.db import advisory_lock, lock_against_deletion
from core.errors import ApiError, ChannelLimit, NotDead, ValidationFailed
from core.etags import IfMatch, require_match
from core.hours import settle_hours
from core.zones import TIME_ZONES
from monitors.locking import lock_monitors as lock_states
from monitors.models import Monitor
from monitors.services import lock_monitors
from projects import access, log, placement
from projects.access import Caller
from projects.models import Membership, Project, Role

MAX_CHANNELS = 50
DELETED_AT_ONCE = 1_000

Scope = AlertChannel.Scope
_FIXED = "cannot be changed; create a new channel."
_PLAIN = {
    **{name: name for name in ("name", "enabled", "remind_every_hours", "delay_min", "hours", "outside", "templates")},
    "timezone": "time_zone",
}
"""Columns that take the given value, by field."""


def create_channel(
    caller: Caller, given: Mapping[str, Any], *, now: datetime, copied_from: str | None = None
) -> tuple[AlertChannel, str | None]:
    """Create a channel. Return it with its setting `secret`, which is shown only once.

    It has the stored secrets of the channel with the id `copied_from` if it is in the same project and sends to the
    same server. The owner of an e-mail address is asked again.
    """
    kind = KINDS[given["kind"]]
    source = None if copied_from is None else get_channel(caller, copied_from)
    caller.require_write(source)
    config = _merge_config(kind, given, stored={}) if source is None else _copied_config(kind, given, source)
    given = settle_timing(given)
    with transaction.atomic():
        own = confirmation.own_address(caller) if kind.consent else None
        monitors = _lock_monitors(caller, given)
        project, owner = placement.place(caller, given)
        scope_project = _lock_scope_project(caller, given)
        channel = AlertChannel(owner=owner, project=project, created_at=now, kind=kind.name)
        channel.name, channel.topics = kind.default_name(config), list(DEFAULT_TOPICS)
        channel.config, channel.hint = config, kind.hint(config)
        chosen = _set_common(channel, given, scope_project=scope_project, monitors=monitors)
        placement.enforce_quota(owner, AlertChannel, limit=MAX_CHANNELS, error=ChannelLimit)
        placement.enforce_links(owner.pk, now_chosen=len(chosen or ()))
        if kind.consent:
            confirmation.settle(channel, address=config[kind.consent], own=own, by=caller.user.email, now=now)
        else:
            channel.confirmed_at = now
        channel.save(force_insert=True)
        channel.monitors.set(chosen or [])
        _record(caller, Action.CHANNEL_CREATED, channel, **({"copied_from": copied_from} if source else {}))
    is_known = source is not None and config.get("secret") == source.config.get("secret")
    return get_channel(caller, channel.public_id), None if is_known else config.get("secret")


def update_channel(
    caller: Caller, public_id: str, given: Mapping[str, Any], *, now: datetime, if_match: IfMatch = None
) -> AlertChannel:
    """Change the fields in `given`. The merged channel is validated. Raises ChangedMeanwhile."""
    given = settle_timing(given)
    with transaction.atomic():
        gives_address = any(kind.consent in given for kind in KINDS.values() if kind.consent)
        own = confirmation.own_address(caller) if gives_address else None
        monitors = _lock_monitors(caller, given)
        scope_project = _lock_scope_project(caller, given)
        channel = access.lock(get_channel, caller, public_id, with_owner=bool(monitors), if_match=if_match)
        _require_kind(channel, given)
        placement.require_same_project(channel, given, reason=_FIXED)
        kind, before = KINDS[channel.kind], channel.config
        config = _moved_config(kind, given, stored=before)
        changed = [*_PLAIN.values(), "topics", "scope", "scope_project", "monitor_tags", "monitor_tag_keys"]
        chosen = _set_common(channel, given, scope_project=scope_project, monitors=monitors)
        if config != before:
            channel.config, channel.hint = config, kind.hint(config)
            changed += ["config", "hint"]
        if kind.consent in given and (config != before or channel.confirmed_at is None):
            confirmation.settle(channel, address=config[kind.consent], own=own, by=caller.user.email, now=now)
            changed += ["confirmed_at", "confirmation_digest", "confirmation_until"]
        channel.save(update_fields=changed)
        if chosen is not None:
            placement.enforce_links(channel.owner_id, now_chosen=len(chosen), before=channel.monitors.count())
            channel.monitors.set(chosen)
        _record(caller, Action.CHANNEL_UPDATED, channel, fields=sorted(given))
    return get_channel(caller, public_id)


def lock_before_choice(caller: Caller, monitor: Monitor | None, project_id: str | None) -> None:
    """Lock everything that a change of the monitor and `choose_channels` lock, in the common order.

    These are its state, its present project and that with the id `project_id`, and the owners of both and of personal
    channels, in key order. A monitor that is to be created is None.
    """
    project_ids, owner_ids = {project_id}, {caller.user.pk}
    if monitor is not None:
        locked = lock_states([monitor.pk]).get(monitor.pk, monitor)
        owner_ids.add(locked.owner_id)
        if locked.project is not None:
            project_ids.add(locked.project.public_id)
    access.lock_projects(caller, project_ids)
    of_projects = Membership.objects.filter(project__public_id__in=project_ids - {None}, role=Role.OWNER)
    owner_ids.update(of_projects.exclude(user=None).values_list("user", flat=True))
    list(User.objects.select_for_update(no_key=True).filter(pk__in=owner_ids).order_by("pk").values_list("pk"))


def choose_channels(caller: Caller, monitor: Monitor, add: Collection[str], remove: Collection[str]) -> None:
    """Let channels with chosen monitors choose this one too, or no longer, in the caller's transaction.

    Channels to remove it from may be gone, or no longer choose monitors. Raises ValidationFailed for `channels`.
    `lock_before_choice` comes first, before the monitor is created or changed.
    """
    keys = list_channels(caller).filter(public_id__in={*add, *remove}).order_by("pk")
    found = list(keys.values_list("public_id", "name", "project"))
    if not set(add) <= {public_id for public_id, *_ in found}:
        raise ValidationFailed("one of these channels no longer exists.", field="channels")
    for public_id, name, project in found:
        if project not in (None, monitor.project_id):  # the channel does not cover it
            if public_id in add:
                raise ValidationFailed(f"{name} cannot choose this monitor.", field="channels")
            continue
        channel = access.lock(get_channel, caller, public_id, with_owner=True)
        before = list(channel.monitors.through.objects.filter(alertchannel=channel).values_list("monitor", flat=True))
        if (monitor.pk in before) == (public_id in add):
            continue
        if public_id not in add:
            if before == [monitor.pk] and not channel.monitor_tags:
                reason = f"{channel.name} has no other monitor; delete or disable the channel instead."
                raise ValidationFailed(reason, field="channels")
            channel.monitors.remove(monitor)
        else:
            if channel.scope != Scope.CHOSEN:
                raise ValidationFailed(f"{channel.name} cannot choose this monitor.", field="channels")
            placement.enforce_links(channel.owner_id, now_chosen=len(before) + 1, before=len(before))
            channel.monitors.add(monitor)
        _record(caller, Action.CHANNEL_UPDATED, channel, fields=["monitor_ids"])


def add_monitors(caller: Caller, public_id: str, monitors: Collection[Monitor]) -> None:
    """Let a channel with chosen monitors choose these too, which the caller's transaction has just created."""
    with transaction.atomic():
        channel = access.lock(get_channel, caller, public_id, with_owner=True)
        if channel.scope != Scope.CHOSEN or any(channel.project_id not in (None, one.project_id) for one in monitors):
            raise ValidationFailed(f"{channel.name} cannot choose this monitor.", field="channels")
        before = channel.monitors.count()
        placement.enforce_links(channel.owner_id, now_chosen=before + len(monitors), before=before)
        channel.monitors.add(*monitors)
        _record(caller, Action.CHANNEL_UPDATED, channel, fields=["monitor_ids"])


class Chosen(NamedTuple):
    """The keys of monitors that a channel chooses now and did not before, and the other way round.

    `refused` is the number of monitors that it cannot choose, because they are not in its project.
    """

    name: str
    added: list[int]
    removed: list[int]
    refused: int


def choose_monitors(
    caller: Caller, public_id: str, *, add: Collection[int] = (), remove: Collection[int] = ()
) -> Chosen:
    """Let a channel with chosen monitors choose those to add as well, and no longer those to remove, by key.

    Monitors that the caller cannot access are left out. Raises NotFound, ValidationFailed and LimitReached.
    """
    with transaction.atomic():
        visible = access.accessible(caller, Monitor.objects.only("project_id", "owner_id"))
        found = lock_states(add, visible) if add else {}
        channel = access.lock(get_channel, caller, public_id, with_owner=True)
        if channel.scope != Scope.CHOSEN:
            raise ValidationFailed(f"{channel.name} no longer selects monitors.", field="channels")
        links = channel.monitors.through.objects.filter(alertchannel=channel)
        before = set(links.values_list("monitor", flat=True))
        fitting = {key for key, one in found.items() if channel.project_id in (None, one.project_id)}
        added = fitting - before
        removed = before & set(visible.filter(pk__in=remove).values_list("pk", flat=True)) if remove else set[int]()
        if removed and before | added == removed and not channel.monitor_tags:
            reason = f"{channel.name} has no other monitor; delete or disable the channel instead."
            raise ValidationFailed(reason, field="channels")
        after = len(before) + len(added) - len(removed)
        placement.enforce_links(channel.owner_id, now_chosen=after, before=len(before))
        channel.monitors.add(*added)
        channel.monitors.remove(*removed)
        if added or removed:
            _record(caller, Action.CHANNEL_UPDATED, channel, fields=["monitor_ids"])
    return Chosen(channel.name, sorted(added), sorted(removed), len(found) - len(fitting))


def ask_again(caller: Caller, public_id: str, *, now: datetime) -> AlertChannel:
    """Request consent again from the owner of an address. Earlier links become invalid."""
    channel = get_channel(caller, public_id)
    caller.require_write(channel)
    consent = KINDS[channel.kind].consent
    if not consent:
        raise ValidationFailed("applies only to channels of kind email.", field="address")
    return update_channel(caller, public_id, {consent: channel.config[consent]}, now=now)


def delete_channel(caller: Caller, public_id: str, *, if_match: IfMatch = None) -> None:
    """Delete a channel with its queued messages and its log.

    Most of the log is deleted first, in short transactions: processes that alert wait for a locked channel.
    """
    channel = get_channel(caller, public_id)
    caller.require_write(channel)
    require_match(channel, if_match)
    log_of = Delivery.objects.filter(channel=channel, done_at__isnull=False)
    while finished := list(log_of.values_list("pk", flat=True)[:DELETED_AT_ONCE]):
        Delivery.objects.filter(pk__in=finished).delete()
    with transaction.atomic():
        channel = access.lock(get_channel, caller, public_id, for_deletion=True, if_match=if_match)
        _record(caller, Action.CHANNEL_DELETED, channel)
        channel.delete()


def replay(caller: Caller, channel_id: str, delivery_id: str, *, now: datetime) -> Delivery:
    """Send a dead delivery again, for another day. Raise NotDead for any other."""
    channel = get_channel(caller, channel_id)
    caller.require_write(channel)
    delivery = get_delivery(channel, delivery_id)
    if not OUTBOX.replay([delivery.pk], now=now).done:
        raise NotDead
    return get_delivery(channel, delivery_id)


def _record(caller: Caller, action: Action, channel: AlertChannel, **details: Any) -> None:
    """Add to the audit log, with the names of the changed fields, but not their values."""
    log.record(
        caller,
        action,
        project=channel.project,
        target_id=channel.public_id,
        target_name=channel.name,
        details={"kind": str(channel.kind)} | details,
    )


def _lock_monitors(caller: Caller, given: Mapping[str, Any]) -> list[Monitor] | None:
    """Return the monitors of `monitor_ids`, locked against deletion, or None if absent."""
    if "monitor_ids" not in given:
        return None
    found = lock_monitors(caller, given["monitor_ids"])
    for index, public_id in enumerate(given["monitor_ids"]):
        if public_id not in found:
            raise ValidationFailed("monitor not found.", field=f"monitor_ids[{index}]")
    return list(dict.fromkeys(found.values()))


def _lock_scope_project(caller: Caller, given: Mapping[str, Any]) -> Project | None:
    wanted = given.get("scope_project_id")
    if wanted is None:
        return None
    try:
        return access.lock_project(caller, wanted, roles=access.EVERY_ROLE)  # viewers too may get its alerts
    except ApiError:
        raise ValidationFailed("project not found.", field="scope_project_id") from None


def settle_timing(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields with hours and templates in their stored form. Raises ValidationFailed.

    Call it outside of the transaction: templates are parsed in a process of their own.
    """
    settled = dict(given)
    if "hours" in given:
        settled["hours"] = settle_hours(given["hours"], "hours")
    if given.get("timezone", "UTC") not in TIME_ZONES:  # opening the given name would read a path on our disk
        raise ValidationFailed("is not a time zone. Write one as Europe/Berlin or UTC.", field="timezone")
    if "templates" in given:
        settled["templates"] = templates.settle(given["templates"])
    return settled


def _set_common(
    channel: AlertChannel,
    given: Mapping[str, Any],
    *,
    scope_project: Project | None,
    monitors: Sequence[Monitor] | None,
) -> Sequence[Monitor] | None:
    """Set the fields that all kinds have. Return the chosen monitors, or None to keep the stored ones."""
    for name, column in _PLAIN.items():
        setattr(channel, column, given.get(name, getattr(channel, column)))
    topics = given.get("topics", channel.topics)
    channel.topics = [topic.value for topic in Topic if topic in topics]
    before = channel.scope if channel.pk else None
    channel.scope = given.get("monitors", channel.scope)
    if channel.scope == Scope.PROJECT:
        if channel.project_id is not None:
            limited = 'a channel of a project is limited to its project: use "all" or "chosen".'
            raise ValidationFailed(limited, field="monitors")
        if "scope_project_id" in given:
            channel.scope_project = scope_project
        if channel.scope_project is None and {"monitors", "scope_project_id"} & given.keys():
            raise ValidationFailed('is required with monitors "project".', field="scope_project_id")
    elif scope_project is not None:
        raise ValidationFailed('applies only with monitors "project".', field="scope_project_id")
    else:
        channel.scope_project = None
    channel.select_tags(given.get("monitor_tags", channel.monitor_tags if channel.scope == Scope.CHOSEN else ()))
    if channel.scope != Scope.CHOSEN:
        if monitors or channel.monitor_tags:
            field = "monitor_ids" if monitors else "monitor_tags"
            raise ValidationFailed('applies only with monitors "chosen".', field=field)
        return []
    keeps = monitors is None and before == Scope.CHOSEN
    loses_tags = "monitor_tags" in given and not channel.monitor_tags
    if keeps and not (loses_tags and not channel.monitors.exists()):
        return None
    if not monitors and not channel.monitor_tags:
        raise ValidationFailed('select at least one, or a tag, with monitors "chosen".', field="monitor_ids")
    monitors = monitors or []
    if channel.project_id is not None and any(m.project_id != channel.project_id for m in monitors):
        raise ValidationFailed("a project's channel can only have monitors of its project.", field="monitor_ids")
    return monitors


def identifying_settings(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a new channel as stored, without generated secrets. Raises ValidationFailed."""
    kind = KINDS[given["kind"]]
    generated = {setting.name for setting in kind.settings if setting.secret and setting.name not in given}
    return {name: value for name, value in _merge_config(kind, given, stored={}).items() if name not in generated}


def _merge_config(
    kind: ChannelKind, given: Mapping[str, Any], *, stored: Mapping[str, str], missing: str | None = None
) -> dict[str, str]:
    """Merge new settings into the stored ones, validated by the kind. Null counts as absent.

    `missing` is the reason to refuse what lacks a required setting.
    """
    own = {name: given[name] for name in settings_by_name() if given.get(name) is not None}
    names = {setting.name for setting in kind.settings}
    for name in own:
        if name not in names:
            raise ValidationFailed(f"is not a field of channels of kind {kind.name}.", field=name)
    config = dict(stored)
    try:
        own = dict(kind.separated(own))
    except ValueError as error:
        raise ValidationFailed(str(error), field=kind.settings[0].name) from None
    for setting in kind.settings:
        if setting.name in own:
            try:
                config[setting.name] = setting.check(own[setting.name])
            except ValueError as error:
                raise ValidationFailed(str(error), field=setting.name) from None
        elif setting.name not in config:
            if setting.required:
                missing = missing or f"is required for a channel of kind {kind.name}."
                raise ValidationFailed(missing, field=setting.name)
            if setting.default is not None:
                config[setting.name] = setting.default()
    return config


def _require_kind(channel: AlertChannel, given: Mapping[str, Any]) -> None:
    if given.get("kind", channel.kind) != channel.kind:
        raise ValidationFailed(_FIXED, field="kind")


def _copied_config(kind: ChannelKind, given: Mapping[str, Any], source: AlertChannel) -> dict[str, str]:
    """Return the settings of a copy: the stored ones, changed by new ones.

    Secrets are write-only: members must not send them to a server of their own, or use them in another project.
    """
    _require_kind(source, given)
    stored = source.config
    secrets = {setting.name for setting in kind.settings if setting.secret}
    public = {name: value for name, value in stored.items() if name not in secrets}
    is_here = given.get("project_id") == (source.project and source.project.public_id)
    lost = "is not copied to another project or server; enter it."
    config = _merge_config(kind, given, stored=stored if is_here else public, missing=lost)
    servers = [setting.name for setting in kind.settings if setting.input_type == "url"]
    is_moved = any(config.get(name) != stored.get(name) for name in servers)
    return _merge_config(kind, given, stored=public, missing=lost) if is_moved else config


def _moved_config(kind: ChannelKind, given: Mapping[str, Any], *, stored: Mapping[str, str]) -> dict[str, str]:
    """Return the merged settings of a change. Another server, if that is a setting of its own, gets no stored secret.

    A URL that is itself the secret names its server; the secret of a webhook only signs.
    """
    config = _merge_config(kind, given, stored=stored)
    servers = [setting.name for setting in kind.settings if setting.input_type == "url" and not setting.secret]
    if all(config.get(name) == stored.get(name) for name in servers):
        return config
    secrets = {setting.name for setting in kind.settings if setting.secret}
    public = {name: value for name, value in stored.items() if name not in secrets}
    return _merge_config(kind, given, stored=public, missing="is not sent to another server; enter it again.")


def add_own_address(user: User) -> None:
    """Create a channel for the e-mail address of a new account. The user may delete it."""
    _add_own_address(user, topics=DEFAULT_TOPICS, now=user.created_at)


def ensure_own_address(user: User, *, now: datetime) -> AlertChannel | None:
    """Return the account's own channel to its address; a new one without topics if the user deleted it.

    None if its channels to that address are disabled or not confirmed, or the address is not verified. Call it in a
    transaction, for several accounts in the order of their keys: it waits for others that may create the channel.
    """
    advisory_lock(f"own address of {user.pk}")
    channels = AlertChannel.objects.filter(owner=user, project=None).order_by("pk")
    own = [channel for channel in channels if sends_to(channel, user.email)]
    if not own and is_verified(user) and lock_against_deletion(User, [user.pk]):
        return _add_own_address(user, topics=(), now=now)
    return next((channel for channel in own if channel.enabled and channel.confirmed_at is not None), None)


def _add_own_address(user: User, *, topics: Iterable[str], now: datetime) -> AlertChannel:
    kind = KINDS["email"]
    channel = AlertChannel(
        owner=user,
        created_at=now,
        confirmed_at=now,
        name=kind.label,
        kind=kind.name,
        hint=kind.hint({kind.consent: user.email}),
        topics=list(topics),
    )
    channel.config = {kind.consent: user.email}
    channel.save(force_insert=True)
    return channel


def lock_channels(**conditions: object) -> None:
    """Lock channels that are being deleted with their account or project, before their messages."""
    list(AlertChannel.objects.filter(**conditions).select_for_update().order_by("pk").values_list("pk"))


def delete_some_messages_of(user: User) -> bool:
    """Delete the next messages of an account's channels. Return whether more may be left."""
    channels = list(AlertChannel.objects.filter(owner=user).values_list("pk", flat=True))
    with transaction.atomic():
        lock_channels(pk__in=channels)
        for model in (DeliveryItem, Delivery):
            rows = model._default_manager.filter(channel__in=channels)
            # In any order: a sorted list would read all of them each time.
            if ids := list(rows.values_list("pk", flat=True)[:DELETED_AT_ONCE]):
                model._default_manager.filter(pk__in=ids).delete()
                return True
    return False


def forget_person(user: User) -> None:
    """Remove a deleted account's address from messages of other accounts' channels."""
    items = list(DeliveryItem.objects.alias(by=KT("payload__by")).filter(by__in=addresses_of(user)))
    for item in items:
        item.payload["by"] = GONE
    DeliveryItem.objects.bulk_update(items, ["payload"], batch_size=500)
