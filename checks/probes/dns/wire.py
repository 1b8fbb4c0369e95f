"""Names and records of DNS messages as text, in time that is linear in the message. Pure.

A message of 64 KiB has up to 5,000 records, whose names may all end in the same 127 labels. dnspython would parse these
for each record, which takes 1 s of CPU and blocks all other checks.
"""

from __future__ import annotations

import base64
import socket
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

MAX_NAME = 255  # bytes
_LONGEST_LABEL, _POINTER = 63, 0xC0
_ESCAPED = {code: f"\\{code:03d}" for code in range(256) if not 0x20 <= code < 0x7F}
_IN_NAME = {0x20: "\\032"} | {ord(char): f"\\{char}" for char in '"().;\\@$'} | _ESCAPED
_IN_STRING = {ord(char): f"\\{char}" for char in '"\\'} | _ESCAPED
_TWO, _FOUR, _SRV, _SOA = (struct.Struct(form) for form in ("!H", "!HBB", "!HHH", "!IIIII"))


class MalformedReply(ValueError):
    """The text completes "The name server's answer …"."""


_UNREADABLE = "cannot be read"
_BAD_POINTER = "has a compressed name that points ahead or in a circle"


class Names:
    """The names of one message. The target of each pointer is read once."""

    def __init__(self, wire: bytes) -> None:
        self.wire = wire
        self._known: dict[int, tuple[str, int]] = {}  # text and length of the names that pointers lead to

    def read(self, at: int) -> tuple[str, int]:
        """Return the name in presentation format, with its final dot, and where it ends. Raises MalformedReply."""
        try:
            text, length, end, pointer = self._read_labels(at)
            if pointer is not None:
                rest, more = self._follow(pointer, start=at)
                text, length = text + rest, length + more
        except IndexError:
            raise MalformedReply(_UNREADABLE) from None
        _check_length(length)
        return text or ".", end

    def _follow(self, pointer: int, *, start: int) -> tuple[str, int]:
        """Return the end of a name, without its dot if it is the root. Pointers lead back, so they come to an end."""
        passed: list[tuple[int, str, int]] = []
        target: int | None = pointer
        found = ("", 0)
        while target is not None:
            if target >= start:
                raise MalformedReply(_BAD_POINTER)
            if target in self._known:
                found = self._known[target]
                break
            text, length, _, following = self._read_labels(target)
            passed.append((target, text, length))
            start, target = target, following
        for place, text, length in reversed(passed):
            found = self._known[place] = text + found[0], length + found[1]
            _check_length(found[1])
        return found

    def _read_labels(self, at: int) -> tuple[str, int, int, int | None]:
        """Return the labels until the root or a pointer, their length, where they end, and where the pointer leads."""
        wire, text, length = self.wire, "", 0
        while (size := wire[at]) <= _LONGEST_LABEL:
            at += 1
            length += size + 1
            if not size:
                return text, length, at, None
            _check_length(length)
            text += _label(wire[at : at + size])
            at += size
        if size < _POINTER:
            raise MalformedReply(_UNREADABLE)
        return text, length, at + 2, (size - _POINTER) << 8 | wire[at + 1]


def _check_length(length: int) -> None:
    if length > MAX_NAME:
        raise MalformedReply(_UNREADABLE)


@lru_cache(maxsize=4_096)
def _label(label: bytes) -> str:
    return label.decode("latin-1").translate(_IN_NAME) + "."


class Record(NamedTuple):
    """A record's data: its strings if it is a TXT record, else its presentation format."""

    kind: str
    value: str | tuple[bytes, ...]

    def presentation(self) -> str:
        if isinstance(self.value, str):
            return self.value
        return " ".join(f'"{string.decode("latin-1").translate(_IN_STRING)}"' for string in self.value)


def read_record(kind: str, names: Names, at: int, end: int) -> Record:
    """Return the data between these places. Raises MalformedReply."""
    try:
        return Record(kind, READERS[kind](names, at, end))
    except (struct.error, ValueError, IndexError) as error:
        raise error if isinstance(error, MalformedReply) else MalformedReply(_UNREADABLE) from error


def _name(names: Names, at: int, end: int) -> str:
    text, ends = names.read(at)
    if ends != end:
        raise MalformedReply(_UNREADABLE)
    return text


def _address(family: socket.AddressFamily) -> Callable[[Names, int, int], str]:
    return lambda names, at, end: socket.inet_ntop(family, names.wire[at:end])


def _mx(names: Names, at: int, end: int) -> str:
    (preference,) = _TWO.unpack_from(names.wire, at)
    return f"{preference} {_name(names, at + _TWO.size, end)}"


def _srv(names: Names, at: int, end: int) -> str:
    priority, weight, port = _SRV.unpack_from(names.wire, at)
    return f"{priority} {weight} {port} {_name(names, at + _SRV.size, end)}"


def _soa(names: Names, at: int, end: int) -> str:
    server, at = names.read(at)
    mailbox, at = names.read(at)
    if at + _SOA.size != end:
        raise MalformedReply(_UNREADABLE)
    return " ".join((server, mailbox, *map(str, _SOA.unpack_from(names.wire, at))))


def _ds(names: Names, at: int, end: int) -> str:
    tag, algorithm, kind = _FOUR.unpack(names.wire[at : min(at + _FOUR.size, end)])
    return f"{tag} {algorithm} {kind} {names.wire[at + _FOUR.size : end].hex()}"


def _dnskey(names: Names, at: int, end: int) -> str:
    flags, protocol, algorithm = _FOUR.unpack(names.wire[at : min(at + _FOUR.size, end)])
    return f"{flags} {protocol} {algorithm} {base64.b64encode(names.wire[at + _FOUR.size : end]).decode()}"


def _caa(names: Names, at: int, end: int) -> str:
    data = names.wire[at:end]
    flags, size = data[0], data[1]
    tag, value = data[2 : 2 + size], data[2 + size :]
    if len(tag) < size or not tag.isalnum():
        raise MalformedReply(_UNREADABLE)
    return f'{flags} {tag.decode()} "{value.decode("latin-1").translate(_IN_STRING)}"'


def _txt(names: Names, at: int, end: int) -> tuple[bytes, ...]:
    wire = names.wire
    strings = []
    while at < end:
        size = wire[at]
        strings.append(wire[at + 1 : at + 1 + size])
        at += 1 + size
    if at != end or not strings:
        raise MalformedReply(_UNREADABLE)
    return tuple(strings)


READERS: dict[str, Callable[[Names, int, int], str | tuple[bytes, ...]]] = {
    "A": _address(socket.AF_INET),
    "AAAA": _address(socket.AF_INET6),
    "CAA": _caa,
    "CNAME": _name,
    "DNSKEY": _dnskey,
    "DS": _ds,
    "MX": _mx,
    "NS": _name,
    "PTR": _name,
    "SOA": _soa,
    "SRV": _srv,
    "TXT": _txt,
}
