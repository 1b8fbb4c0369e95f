"""Labels of containers and annotations of Kubernetes objects, as entries of a manifest. Pure.

Labels come from anybody who may start a container or create an object. They set a few settings only: nothing that reads
files or the environment, sends bodies or headers, or chooses the project and the locations.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from core.text import one_line, shorten
from pulsekeeper.manifest.problems import Hints, printable

PREFIX = "pulsekeeper."
TAG = "discovered:"
MAX_NAME, MAX_VALUE, MAX_LABELS, MAX_PER_OBJECT, MAX_ADDRESSES = 200, 2_048, 200, 20, 50
_TYPES = {"http": "http", "https": "http", "tcp": "port", "tls": "port", "udp": "udp", "icmp": "ping", "dns": "dns"}
"""The types that schemes of addresses have."""
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)?")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


def is_own(label: str) -> bool:
    return label.lower().startswith(PREFIX)


@dataclass(frozen=True, slots=True, order=True)
class Complaint:
    """Why a label, or a whole object if `label` is empty, is skipped. Contains no value of a label."""

    place: str
    label: str
    message: str

    def __str__(self) -> str:
        return printable(": ".join(filter(None, [self.place, self.label, self.message])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """An object with labels. `place` names it in messages, `name` is the default name of its monitors.

    `namespace` begins the names of all of its monitors, so that no tenant can take a name of another. `addresses` are
    those of its routers or hosts, which are monitored unless its labels set one.
    """

    place: str
    name: str
    labels: Mapping[str, str]
    namespace: str = ""
    addresses: Sequence[str] = ()


@dataclass(slots=True)
class Listing:
    """What a platform lists. `gaps` say what could not be listed: then a missing object may still be there."""

    objects: list[Labelled] = field(default_factory=list)
    complaints: list[Complaint] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Found:
    """A monitor, as an entry of a manifest without project and mark. `label` is empty if no label has its address."""

    place: str
    label: str
    entry: dict[str, Any]
    namespace: str = ""

    def is_same(self, other: Found) -> bool:
        """Return whether both are of one host and path, which several routers or ingresses may share."""
        mine, theirs = (one.entry["url"].partition("://")[2] for one in (self, other))
        return not self.label and not other.label and mine == theirs


@dataclass(slots=True)
class Discovered:
    """The monitors of a listing.

    `names`, and `urls` with their namespaces, are those of existing monitors that have to stay: of objects with
    invalid labels.
    """

    monitors: list[Found] = field(default_factory=list)
    complaints: list[Complaint] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    urls: set[tuple[str, str]] = field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        return not (self.monitors or self.names or self.urls)


class _InvalidLabel(Exception):
    """A label is invalid. `label` is its name after the prefix and the id."""

    def __init__(self, label: str, message: str) -> None:
        self.label, self.message = label, message
        super().__init__(message)


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty.")
    return value.strip()


def _name(value: str) -> str:
    if len(value.strip()) > MAX_NAME or one_line(value, limit=MAX_NAME) != " ".join(value.split()):
        raise ValueError(f"must have at most {MAX_NAME} characters, and no control characters.")
    return " ".join(_text(value).split())


def _whole(value: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", value.strip()):
        raise ValueError("must be a whole number.")
    return int(value)


def _flag(value: str) -> bool:
    word = value.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("must be true or false.")
    return word == "true"


def _one_of(*words: str, fold: Callable[[str], str] = str.lower) -> Callable[[str], str]:
    def parse(value: str) -> str:
        word = fold(value.strip())
        if word not in words:
            raise ValueError(f"must be one of {', '.join(words)}.")
        return word

    return parse


def _words(value: str) -> list[str]:
    return [word for part in value.split(",") if (word := part.strip())]


def _tags(value: str) -> list[str]:
    found = _words(value)
    if any(tag.casefold().startswith(TAG) for tag in found):
        raise ValueError(f"cannot have tags that begin with {TAG}, which mark what discovery created.")
    return found


def _path(value: str) -> str:
    path = value.strip()
    if not path.startswith("/") or not path.isascii() or not path.isprintable() or set(path) & set(' "<>\\#'):
        raise ValueError("must begin with / and have no spaces.")
    return path


def _seconds(value: str) -> int:
    return _amount(value, unit=1.0, plain="s")


def _milliseconds(value: str) -> int:
    return _amount(value, unit=0.001, plain="ms")


def _amount(value: str, *, unit: float, plain: str) -> int:
    """Return a number of units. `plain` is the unit of a number without one."""
    found = _AMOUNT.fullmatch(value.strip().lower())
    number = int(found[1]) * _SECONDS[found[2] or plain] / unit if found else 0.5
    if round(number, 6) != round(number) or number > 2**31 - 1:
        raise ValueError("must be a whole number, or one with a unit: 90s, 5m or 1h (500ms for times of responses).")
    return round(number)


_DERIVED: Mapping[str, Callable[[str], Any]] = {"path": _path, "scheme": _one_of("http", "https")}
"""Settings for the addresses of routers and hosts."""
_SETTINGS: Mapping[str, Callable[[str], Any]] = {
    "name": _name,
    "url": _text,
    "type": _one_of("http", "keyword", "api", "port", "udp", "ping", "dns"),
    "method": _one_of("HEAD", "GET", "OPTIONS", fold=str.upper),
    "tags": _tags,
    "interval_sec": _seconds,
    "confirmation_sec": _seconds,
    "timeout_ms": _milliseconds,
    "slow_ms": _milliseconds,
    **dict.fromkeys(("expect_status", "fail_threshold", "recover_threshold", "packets", "min_replies"), _whole),
    "quorum": _whole,
    **dict.fromkeys(("enabled", "follow_redirects", "check_ssl", "check_domain", "tls_verify"), _flag),
    "text_contains": _text,
    "text_absent": _text,
    "json_field": _text,
    **_DERIVED,
}
_SHORT = {name.rpartition("_")[0]: name for name in _SETTINGS if name.endswith(("_sec", "_ms"))}
_RULES = ("text_contains", "text_absent", "json_field")
_OWN = ("name", "url")
"""Settings that an object's monitors with an id do not inherit."""
_REFUSED = (
    *("project", "project_id", "id", "locations", "ca_certificate", "headers", "header", "request_headers"),
    *("body", "request_body", "request_body_encoding", "schedule", "timezone", "missed", "grace", "grace_sec"),
)
"""Settings of the API that labels cannot have."""


def parse_defaults(given: Sequence[str]) -> dict[str, Any]:
    """Return the settings of options like `interval=5m`. Raises ValueError."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise ValueError(f"{text}: must have the form SETTING=VALUE.")
        if name == "locations":
            found[name] = _words(value)
            continue
        try:
            parser = _refuse("each monitor has its own.") if name in _OWN else _parser(name, Hints())
            found[_SHORT.get(name, name)] = parser(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return found


def discover(listing: Listing, *, defaults: Mapping[str, Any], max_per_namespace: int) -> Discovered:
    """Return the monitors of all objects. What is invalid is skipped with a complaint."""
    found = Discovered(complaints=list(listing.complaints))
    hints = Hints()
    taken: dict[str, Found] = {}
    counts: Counter[str] = Counter()
    full: set[str] = set()
    for one in sorted(listing.objects, key=lambda one: (one.namespace, one.place)):
        for monitor in _Reading(one, defaults, found, hints).monitors():
            name = monitor.entry["name"]
            if name in taken:
                if not monitor.is_same(taken[name]):
                    said = f"another monitor is named {name!r} already, by {taken[name].place}; set another name."
                    found.complaints.append(Complaint(monitor.place, monitor.label, said))
                    found.urls.add((one.namespace, monitor.entry["url"]))
            elif one.namespace and counts[one.namespace] >= max_per_namespace:
                found.names.add(name)
                if one.namespace not in full:
                    full.add(one.namespace)
                    said = f"the namespace has more than {max_per_namespace} monitors (--max-per-namespace)."
                    found.complaints.append(Complaint(monitor.place, monitor.label, f"{said} The others are skipped."))
            else:
                taken[name] = monitor
                counts[one.namespace] += 1
                found.monitors.append(monitor)
    return found


class _Reading:
    """The labels of one object."""

    def __init__(self, one: Labelled, defaults: Mapping[str, Any], found: Discovered, hints: Hints) -> None:
        self._one, self._defaults, self._found, self._hints = one, defaults, found, hints
        self._given: dict[str, dict[str, tuple[str, str]]] = {}  # by id and setting: label and value
        self._broken: set[str] = set()  # ids

    def monitors(self) -> Iterable[Found]:
        """Yield the valid monitors, and report the others."""
        labels = {key: value for key, value in sorted(self._one.labels.items()) if is_own(key)}
        if labels.pop(f"{PREFIX}ignore", "").strip().lower() == "true":
            return
        if len(labels) > MAX_LABELS:
            self._report("", f"has more than {MAX_LABELS} labels that begin with {PREFIX}; it is skipped.")
            self._broken.add("")
            labels = dict(list(labels.items())[:MAX_LABELS])
        for label, value in labels.items():
            self._sort(label, value)
        own = self._given.setdefault("", {})
        ids = [key for key in self._given if key or "url" in own]
        if len(ids) > MAX_PER_OBJECT:
            self._report("", f"has more than {MAX_PER_OBJECT} monitors; the others are skipped.")
            for key in ids[MAX_PER_OBJECT:]:
                self._keep(key, "")
        if ids:
            yield from self._built((key, "") for key in ids[:MAX_PER_OBJECT])
        elif self._one.addresses:
            if len(self._one.addresses) > MAX_ADDRESSES:
                self._report("", f"has more than {MAX_ADDRESSES} hosts and paths; the others are skipped.")
                for address in self._one.addresses[MAX_ADDRESSES:]:
                    self._keep("", address)
            yield from self._built(("", address) for address in self._one.addresses[:MAX_ADDRESSES])
        elif labels:
            if "" not in self._broken:
                self._report("", f"has labels that begin with {PREFIX}, but no {PREFIX}url.")
            self._keep("", "")  # the label of the address may be misspelled

    def _built(self, wanted: Iterable[tuple[str, str]]) -> Iterable[Found]:
        """Yield the valid ones of monitors, each given by its id, and its address if that comes from a router."""
        for key, derived in wanted:
            prefix = f"{PREFIX}{key}." if key else PREFIX
            if key in self._broken or "" in self._broken:
                self._keep(key, derived)
                continue
            try:
                label = "" if derived else f"{prefix}url"
                yield Found(self._one.place, label, self._entry(key, derived), self._one.namespace)
            except _InvalidLabel as error:
                self._report(error.label, error.message)
                self._keep(key, derived)

    def _sort(self, label: str, value: str) -> None:
        """Add a label to its monitor, or report it."""
        *ids, setting = label[len(PREFIX) :].split(".")
        key = ids[0] if ids else ""
        if len(ids) > 1 or (ids and not _ID.fullmatch(key)):
            self._report(label, f"must be {PREFIX}SETTING or {PREFIX}ID.SETTING.")
            self._broken.add("")
            self._given.setdefault(key, {})
            return
        name = setting.lower().replace("-", "_")
        name = _SHORT.get(name, name)
        given = self._given.setdefault(key, {})
        problem = ""
        try:
            _parser(name, self._hints)
        except ValueError as error:
            problem = str(error)
        if len(value) > MAX_VALUE:
            problem = f"has more than {MAX_VALUE} characters."
        elif name in given:
            problem = f"sets the same as {given[name][0]}."
        if problem:
            self._report(label, problem)
            self._broken.add(key)
        else:
            given[name] = (label, value)

    def _entry(self, key: str, derived: str) -> dict[str, Any]:
        """Return the entry. Raises _InvalidLabel."""
        inherited = {name: given for name, given in self._given[""].items() if not key or name not in _OWN}
        settings: dict[str, Any] = dict(self._defaults)
        for name, (label, value) in {**inherited, **self._given[key]}.items():
            try:
                parsed = _SETTINGS[name](value)
            except ValueError as error:
                raise _InvalidLabel(label, str(error)) from None
            settings[name] = [*settings.get("tags", ()), *parsed] if name == "tags" else parsed
        path, scheme = (settings.pop(name, None) for name in _DERIVED)
        if derived:
            settings["url"] = _derived_url(derived, path=path, scheme=scheme)
        elif "url" not in settings:
            raise _InvalidLabel(f"{PREFIX}{key}.url", "is missing.")
        label = self._given[key].get("url", ("url", ""))[0]
        kind = _TYPES.get(settings["url"].partition(":")[0].lower())
        if kind is None:
            raise _InvalidLabel(label, "must be a complete address, like https://shop.example/health.")
        settings.setdefault("type", kind)
        settings["name"] = self._full_name(key, derived, settings.get("name"))
        settings["tags"] = list({tag.casefold(): tag for tag in settings.get("tags", ())}.values())
        rules = [_rule(name, settings.pop(name)) for name in _RULES if name in settings]
        return {**settings, **({"content_rules": rules} if rules else {})}

    def _full_name(self, key: str, derived: str, given: str | None) -> str:
        shown = derived.partition("://")[2].rstrip("/")
        if given is None:
            name = shown or (f"{self._one.name}: {key}" if key else self._one.name)
        else:
            name = f"{given}: {shown}" if shown and len(self._one.addresses) > 1 else given
        return one_line(f"{self._one.namespace}/{name}" if self._one.namespace else name, limit=MAX_NAME)

    def _keep(self, key: str, derived: str) -> None:
        """Keep what an object with invalid labels may have created: by its name, and by its address."""
        given = self._given.get(key, {})
        try:
            name = _name(given["name"][1]) if "name" in given else None
        except ValueError:
            name = None
        self._found.names.add(self._full_name(key, derived, name))
        if url := derived or given.get("url", ("", ""))[1].strip():
            self._found.urls.add((self._one.namespace, url))

    def _report(self, label: str, message: str) -> None:
        self._found.complaints.append(Complaint(self._one.place, shorten(label, limit=MAX_NAME), message))


def _refuse(message: str) -> Callable[[str], Any]:
    def parse(value: str) -> NoReturn:
        raise ValueError(message)

    return parse


def _parser(name: str, hints: Hints) -> Callable[[str], Any]:
    """Return the parser of a setting. Raises ValueError."""
    name = _SHORT.get(name, name)
    if name in _REFUSED:
        raise ValueError("cannot be set by a label.")
    if name not in _SETTINGS:
        raise ValueError(f"unknown setting.{hints.did_you_mean(name, [*_SETTINGS, *_SHORT])}")
    return _SETTINGS[name]


def _rule(name: str, value: str) -> dict[str, str]:
    if name != "json_field":
        return {"type": name, "value": value}
    path, equals, wanted = value.partition("=")
    return {"type": name, "path": path.strip()} | ({"equals": wanted.strip()} if equals else {})


def _derived_url(address: str, *, path: str | None, scheme: str | None) -> str:
    own, _, rest = address.partition("://")
    host, slash, old = rest.partition("/")
    return f"{scheme or own}://{host}{path or slash + old}"
