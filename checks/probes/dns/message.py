"""DNS messages: the query as bytes, and as much of a reply as a check needs. Pure."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import dns.exception
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
from dns.rcode import FORMERR, NOTIMP, REFUSED, SERVFAIL
from dns.rdataclass import IN
from dns.rdatatype import CNAME
from dns.rdtypes.ANY.OPT import OPT
from dns.wire import Parser

from checks.probes.dns.wire import READERS, MalformedReply, Names, Record, read_record

UDP_PAYLOAD = 1232  # fits into one packet everywhere: https://www.dnsflagday.net/2020/
_HEADER = struct.Struct("!HHHHHH")
_RECORD = struct.Struct("!HHIH")
_WANTED = 0x0100  # RD
_QR, _TC = 0x8000, 0x0200  # not the enum of `dns.flags`, which takes longer than the comparison
_RESPONSE = 0xF800  # QR and the opcode
_OPT = struct.pack("!BHHIH", 0, dns.rdatatype.OPT, UDP_PAYLOAD, 0, 0)
# A server that cannot read a query may leave it out of its reply.
_WITHOUT_QUESTION = frozenset({FORMERR, SERVFAIL, NOTIMP, REFUSED})


class AliasLoop(ValueError):
    """The aliases of the name lead in a circle."""


@lru_cache(maxsize=4096)
def question(name: str, record_type: str) -> bytes:
    """Return a question for a name without its final dot, or the root."""
    labels = b"".join(bytes([len(label)]) + label for label in name.encode("ascii").split(b".") if label) + b"\0"
    return labels + struct.pack("!HH", dns.rdatatype.from_text(record_type), IN)


def make_query(asked: bytes, *, edns: bool) -> bytes:
    """Return a query with a random id."""
    head = os.urandom(2) + struct.pack("!HHHHH", _WANTED, 1, 0, 0, int(edns))
    return head + asked + (_OPT if edns else b"")


class Reply(NamedTuple):
    """A reply to our query. `at` is where its answer section begins; `counts` are the records of the sections."""

    wire: bytes
    flags: int
    counts: tuple[int, int, int]
    at: int

    @property
    def rcode(self) -> int:
        return self.flags & 0xF

    @property
    def rcode_name(self) -> str:
        return dns.rcode.to_text(dns.rcode.Rcode(self.rcode))

    @property
    def is_truncated(self) -> bool:
        return bool(self.flags & _TC)


def match_reply(wire: bytes, query: bytes, asked: bytes) -> Reply | None:
    """Return the reply to `query`, None if it is anything else: another id, or another question."""
    if len(wire) < _HEADER.size or wire[:2] != query[:2]:
        return None
    _, flags, questions, *counts = _HEADER.unpack_from(wire)
    if flags & _RESPONSE != _QR:
        return None
    at = _HEADER.size
    if questions == 1:
        at += len(asked)
        # Neither type nor class nor the length of a label is a capital letter.
        if wire[_HEADER.size : at].lower() != asked:
            return None
    elif questions or flags & 0xF not in _WITHOUT_QUESTION:
        return None
    return Reply(wire, flags, (counts[0], counts[1], counts[2]), at)


class Found(NamedTuple):
    """The records of the type that was asked for, at the end of the aliases; the last of these, if there are any."""

    records: list[Record]
    alias: str | None


def find_records(reply: Reply, name: str, record_type: str) -> Found:
    """Return what the answer section has for the name. Raises MalformedReply and AliasLoop."""
    wanted = dns.rdatatype.from_text(record_type)
    records: dict[str, list[Record]] = {}
    aliases: dict[str, str] = {}
    names = Names(reply.wire)
    for owner, rdtype, rdclass, _, at, end in _read_section(names, reply.at, reply.counts[0]):
        if rdclass == IN and rdtype == wanted:
            records.setdefault(owner.lower(), []).append(read_record(record_type, names, at, end))
        elif rdclass == IN and rdtype == CNAME:
            aliases.setdefault(owner.lower(), read_record("CNAME", names, at, end).presentation())
    key = name.lower().removesuffix(".") + "."
    alias: str | None = None
    for _ in range(len(aliases) + 1):
        if key in records or key not in aliases:
            return Found(records.get(key, []), alias)
        alias = aliases[key]
        key = alias.lower()
    raise AliasLoop(name)


def describe(reply: Reply, *, limit: int) -> Iterator[str]:
    """Yield the lines of a reply, in the format of zone files, until about `limit` characters."""
    names, at = Names(reply.wire), reply.at
    length = 0
    try:
        for section, count in zip(("answer", "authority", "additional"), reply.counts, strict=True):
            title = f"; {section}\n"
            for owner, rdtype, rdclass, ttl, begin, end in _read_section(names, at, count):
                for line in _lines(names, owner, (rdtype, rdclass, ttl), begin, end):
                    yield line if line.startswith(";") else f"{title}{line}"
                    title = title if line.startswith(";") else ""
                    length += len(line)
                    if length > limit:
                        return
                at = end
    except (dns.exception.DNSException, MalformedReply) as error:
        yield f"; malformed: {error}"


def _lines(names: Names, owner: str, numbers: tuple[int, int, int], at: int, end: int) -> Iterator[str]:
    rdtype, rdclass, ttl = numbers
    kind, class_name = dns.rdatatype.to_text(rdtype), dns.rdataclass.to_text(rdclass)  # type: ignore[arg-type]
    if kind in READERS and rdclass == IN:
        yield f"{owner} {ttl} {class_name} {kind} {read_record(kind, names, at, end).presentation()}"
        return
    parser = Parser(names.wire, at)
    with parser.restrict_to(end - at):
        rdata = dns.rdata.from_wire_parser(rdclass, rdtype, parser)  # type: ignore[arg-type]  # it makes them
    if isinstance(rdata, OPT):
        yield from (f"; {option}" for option in rdata.options)  # such as why a resolver failed
    else:
        yield f"{owner} {ttl} {class_name} {kind} {rdata.to_text()}"


def _read_section(names: Names, at: int, count: int) -> Iterator[tuple[str, int, int, int, int, int]]:
    """Yield the owner, type, class, TTL, and where the data begin and end. Raises MalformedReply."""
    wire = names.wire
    for _ in range(count):
        owner, at = names.read(at)
        if at + _RECORD.size > len(wire):
            raise MalformedReply("cannot be read")
        rdtype, rdclass, ttl, length = _RECORD.unpack_from(wire, at)
        at += _RECORD.size
        if at + length > len(wire):
            raise MalformedReply("cannot be read")
        yield owner, rdtype, rdclass, ttl, at, at + length
        at += length
