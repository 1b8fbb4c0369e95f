"""Addresses of Traefik's routers, read from their rules. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from urllib.parse import quote

MAX_RULE, MAX_DEPTH, MAX_ALTERNATIVES, MAX_PAIRS, MAX_RULES = 4_096, 30, 100, 1_000, 50
"""MAX_PAIRS: how many alternatives one && may combine. MAX_RULES: those of one object."""
TOO_MANY_RULES = f"more than {MAX_RULES} rules; the others are skipped."
TLS_ENTRY_POINTS = ("websecure", "https")
_ROUTER = re.compile(r"traefik\.http\.routers\.([^.]+)\.(.+)", re.IGNORECASE)
_TOKEN = re.compile(r"\s*(?:(&&|\|\||[()!,])|([A-Za-z]+)|`([^`]*)`|\"([^\"\\]*)\"|(\Z))")
_HOST = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*"
)


class UnreadableRuleError(Exception):
    """A rule has an error, or is too large."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Requests that a rule matches: those of a host and path. None: any.

    `plain`: a GET without special headers, from any address, matches.
    """

    host: str | None = None
    path: str | None = None
    plain: bool = True


def read_rule(rule: str) -> tuple[list[tuple[str, str]], str]:
    """Return the hosts and paths that a plain GET request reaches, or why there are none."""
    try:
        found = _Parser(rule).parse()
    except UnreadableRuleError as error:
        return [], str(error)
    pairs = [(one.host.lower(), one.path or "/") for one in found if one.plain and one.host is not None]
    return list(dict.fromkeys(pairs)), "" if pairs else "has no host that a plain request reaches."


def addresses_of_labels(labels: Mapping[str, str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the addresses of the routers that labels define, and the labels that say nothing, with the reasons."""
    routers: dict[str, dict[str, str]] = {}
    if labels.get("traefik.enable", "true").strip().lower() == "false":
        return [], []
    for label, value in sorted(labels.items()):
        if found := _ROUTER.fullmatch(label):
            routers.setdefault(found[1], {})[found[2].lower()] = value
    pairs: list[tuple[str, str, bool]] = []
    problems = []
    ruled = [(name, settings) for name, settings in routers.items() if "rule" in settings]
    if len(ruled) > MAX_RULES:
        problems.append(("traefik.http.routers", TOO_MANY_RULES))
    for name, settings in ruled[:MAX_RULES]:
        read, problem = read_rule(settings["rule"])
        if problem:
            problems.append((f"traefik.http.routers.{name}.rule", problem))
        points = [point.strip() for point in settings.get("entrypoints", "").split(",")]
        encrypted = is_encrypted(points, tls=_has_tls(settings))
        pairs += [(host, path, encrypted) for host, path in read]
    return complete(pairs), problems


def is_encrypted(entry_points: Iterable[str], *, tls: bool) -> bool:
    return tls or any(point.lower() in TLS_ENTRY_POINTS for point in entry_points)


def complete(pairs: Sequence[tuple[str, str, bool]]) -> list[str]:
    """Return the addresses of hosts and paths. One with TLS replaces the same one without, which often redirects."""
    encrypted = {(host, path): False for host, path, _ in pairs}
    for host, path, tls in pairs:
        encrypted[host, path] |= tls
    return [f"{'https' if tls else 'http'}://{host}{path}" for (host, path), tls in encrypted.items()]


def is_host(text: str) -> bool:
    return _HOST.fullmatch(text) is not None


def usable_path(path: str) -> str | None:
    """Return the path of an address, or None if it is a pattern."""
    if not path.startswith("/") or set(path) & set("{}*^$|\\()[]"):
        return None
    return quote(path, safe="/%:@!&'+,;=~-._")


def _has_tls(settings: Mapping[str, str]) -> bool:
    own = settings.get("tls")
    if own is not None:
        return own.strip().lower() != "false"
    return any(name.startswith("tls.") for name in settings)


class _Parser:
    """`||` binds less than `&&`, and `!` binds most."""

    def __init__(self, rule: str) -> None:
        if len(rule) > MAX_RULE:
            raise UnreadableRuleError(f"has more than {MAX_RULE} characters.")
        self._tokens = list(_tokens(rule))
        self._at = 0

    def parse(self) -> list[Alternative]:
        found = self._either(0)
        if self._kind() != "end":
            raise UnreadableRuleError("cannot be read.")
        return found

    def _kind(self) -> str:
        return self._tokens[self._at][0]

    def _accept(self, sign: str) -> bool:
        fits = self._tokens[self._at] == ("sign", sign)
        self._at += fits
        return fits

    def _either(self, depth: int) -> list[Alternative]:
        found = self._both(depth)
        while self._accept("||"):
            found = _limited(dict.fromkeys([*found, *self._both(depth)]))
        return found

    def _both(self, depth: int) -> list[Alternative]:
        found = self._one(depth)
        while self._accept("&&"):
            others = self._one(depth)
            if len(found) * len(others) > MAX_PAIRS:
                raise UnreadableRuleError(f"has more than {MAX_ALTERNATIVES} alternatives.")
            pairs = product(found, others)
            found = _limited(dict.fromkeys(both for one, other in pairs if (both := _and(one, other)) is not None))
        return found

    def _one(self, depth: int) -> list[Alternative]:
        if depth > MAX_DEPTH:
            raise UnreadableRuleError("is nested too deeply.")
        if self._accept("!"):
            self._one(depth + 1)
            return [Alternative()]  # excludes some requests: others still match
        if self._accept("("):
            found = self._either(depth + 1)
            self._expect(")")
            return found
        kind, name = self._tokens[self._at]
        if kind != "name":
            raise UnreadableRuleError("cannot be read.")
        self._at += 1
        return _matched(name.lower(), self._arguments())

    def _arguments(self) -> list[str]:
        self._expect("(")
        found = []
        while self._kind() == "text":
            found.append(self._tokens[self._at][1])
            self._at += 1
            if not self._accept(","):
                break
        self._expect(")")
        return found

    def _expect(self, sign: str) -> None:
        if not self._accept(sign):
            raise UnreadableRuleError("cannot be read.")


def _tokens(rule: str) -> Iterator[tuple[str, str]]:
    at = 0
    while True:
        found = _TOKEN.match(rule, at)
        if found is None:
            raise UnreadableRuleError("cannot be read.")
        sign, name, text, quoted, end = found.groups()
        if end is not None:
            yield ("end", "")
            return
        if sign is not None:
            yield ("sign", sign)
        elif name is not None:
            yield ("name", name)
        else:
            yield ("text", text if text is not None else quoted)
        at = found.end()


def _matched(matcher: str, arguments: Sequence[str]) -> list[Alternative]:
    unclear = [Alternative(plain=False)]
    match matcher:
        case "host" | "hostheader":
            return _limited([Alternative(host=host) if is_host(host) else unclear[0] for host in arguments])
        case "path" | "pathprefix":
            paths = [usable_path(path) for path in arguments]
            return _limited([unclear[0] if path is None else Alternative(path=path) for path in paths])
        case "method":
            return [Alternative()] if {"GET", "HEAD"} & {word.upper() for word in arguments} else unclear
        case "hostregexp" | "pathregexp" | "headers" | "header" | "headersregexp" | "headerregexp" | "query":
            return unclear
        case "queryregexp" | "clientip":
            return unclear
    raise UnreadableRuleError("has a matcher that is unknown.")


def _and(one: Alternative, other: Alternative) -> Alternative | None:
    """Return the requests that match both, or None if none do."""
    if one.host and other.host and one.host.lower() != other.host.lower():
        return None
    shorter, longer = sorted([one.path or "", other.path or ""], key=len)
    if not longer.startswith(shorter):
        return None
    return Alternative(one.host or other.host, longer or None, one.plain and other.plain)


def _limited(found: Iterable[Alternative]) -> list[Alternative]:
    listed = list(found)
    if len(listed) > MAX_ALTERNATIVES:
        raise UnreadableRuleError(f"has more than {MAX_ALTERNATIVES} alternatives.")
    return listed
