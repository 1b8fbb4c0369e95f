"""DNS messages: the query as bytes, and as much of a reply as a check needs. Pure.

`dns.message` would read all sections into sets, in ten times the CPU of the answer's records alone.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import dns.exception
import dns.name
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
from dns.name import Name
from dns.rcode import FORMERR, NOTIMP, REFUSED, SERVFAIL
from dns.rdata import Rdata
from dns.rdataclass import IN
from dns.rdatatype import AAAA, CNAME, A
from dns.rdtypes.ANY.OPT import OPT
from dns.wire import Parser

from checks.probes.dns.records import presentation

MAX_RECORDS = 256  # of a reply: each may cost 0.1 ms, if its names are made for that
UDP_PAYLOAD = 1232  # fits into one packet everywhere: https://www.dnsflagday.net/2020/
_HEADER = struct.Struct("!HHHHHH")
_RECORD = struct.Struct("!HHIH")
_WANTED = 0x0100  # RD
_QR, _TC = 0x8000, 0x0200  # not the enum of `dns.flags`, which takes longer than the comparison
_RESPONSE = 0xF800  # QR and the opcode
_QUESTION = b"\xc0\x0c"  # a pointer to the name of the question
_OPT = struct.pack("!BHHIH", 0, dns.rdatatype.OPT, UDP_PAYLOAD, 0, 0)
# A server that cannot read a query may leave it out of its reply.
_WITHOUT_QUESTION = frozenset({FORMERR, SERVFAIL, NOTIMP, REFUSED})

Labels = tuple[bytes, ...]


class MalformedReply(ValueError):
    """The text completes "The name server's answer …"."""


class AliasLoop(ValueError):
    """The aliases of the name lead in a circle."""


@lru_cache(maxsize=4096)
def question(name: str, record_type: str) -> bytes:
    labels = b"".join(bytes([len(label)]) + label for label in name.encode("ascii").split(b"."))
    return labels + struct.pack("!BHH", 0, dns.rdatatype.from_text(record_type), IN)


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

    records: list[Rdata]
    alias: Name | None


def find_records(reply: Reply, name: str, record_type: str) -> Found:
    """Return what the answer section has for the name. Raises MalformedReply and AliasLoop."""
    wanted = dns.rdatatype.from_text(record_type)
    records: dict[Labels, list[Rdata]] = {}
    aliases: dict[Labels, Name] = {}
    parser = Parser(reply.wire, reply.at)
    key: Labels = (*name.encode("ascii").split(b"."), b"")
    known = {_QUESTION: key} if reply.at > _HEADER.size else {}
    try:
        for owner, rdtype, rdclass, _, end in _read_section(parser, reply.counts[0], known):
            if rdclass != IN or rdtype not in (wanted, CNAME):
                continue
            rdata = _read_rdata(parser, rdtype, end)
            if rdtype == wanted:
                records.setdefault(owner, []).append(rdata)
            else:
                aliases.setdefault(owner, rdata.target)  # type: ignore[attr-defined]  # a CNAME's
    except dns.exception.DNSException as error:
        raise MalformedReply(_explain(error)) from error
    alias: Name | None = None
    for _ in range(len(aliases) + 1):
        if key in records or key not in aliases:
            return Found(records.get(key, []), alias)
        alias = aliases[key]
        key = _key(alias)
    raise AliasLoop(name)


def describe(reply: Reply, *, limit: int) -> Iterator[str]:
    """Yield the lines of a reply, in the format of zone files, until about `limit` characters."""
    parser = Parser(reply.wire, reply.at)
    length = 0
    try:
        for section, count in zip(("answer", "authority", "additional"), reply.counts, strict=True):
            title = f"; {section}\n"
            for owner, rdtype, rdclass, ttl, end in _read_section(parser, count):
                rdata = _read_rdata(parser, rdtype, end, rdclass)
                if isinstance(rdata, OPT):
                    yield from (f"; {option}" for option in rdata.options)  # such as why a resolver failed
                    continue
                line = f"{Name(owner)} {ttl} {rdata.rdclass.name} {rdata.rdtype.name} {presentation(rdata)}"
                yield f"{title}{line}"
                title = ""
                length += len(line)
                if length > limit:
                    return
    except (dns.exception.DNSException, MalformedReply) as error:
        yield f"; malformed: {error}"


def _read_section(
    parser: Parser, count: int, names: Mapping[bytes, Labels] = MappingProxyType({})
) -> Iterator[tuple[Labels, int, int, int, int]]:
    """Yield the owner in lower case, type, class, TTL, and the end of the data, at whose beginning the parser is.

    The caller may read the data or not. `names` are owners by their pointers.
    """
    if count > MAX_RECORDS:
        raise MalformedReply(f"has {count} records, and at most {MAX_RECORDS} are read")
    wire = parser.wire
    known = dict(names)  # most owners are a pointer to an earlier one
    for _ in range(count):
        at = parser.current
        pointer = wire[at : at + 2]
        owner = known.get(pointer)
        if owner is None:
            owner = _key(parser.get_name(decompress=True))
            if parser.current == at + 2:
                known[pointer] = owner
        else:
            parser.current = at + 2
        rdtype, rdclass, ttl, length = _RECORD.unpack(parser.get_bytes(_RECORD.size))
        end = parser.current + length
        yield owner, rdtype, rdclass, ttl, end
        parser.seek(end)


def _read_rdata(parser: Parser, rdtype: int, end: int, rdclass: int = IN) -> Rdata:
    if rdtype in (A, AAAA) and rdclass == IN:
        return _read_address(rdtype, parser.get_bytes(end - parser.current))
    with parser.restrict_to(end - parser.current):
        return dns.rdata.from_wire_parser(rdclass, rdtype, parser)  # type: ignore[arg-type]  # it makes them


@lru_cache(maxsize=16_384)
def _read_address(rdtype: int, data: bytes) -> Rdata:
    """Return what most replies of monitors have, and have again in the next check."""
    return dns.rdata.from_wire(IN, rdtype, data, 0, len(data))  # type: ignore[arg-type]  # it makes them


def _key(name: Name) -> Labels:
    return tuple(label.lower() for label in name.labels)


def _explain(error: dns.exception.DNSException) -> str:
    if isinstance(error, dns.name.BadPointer | dns.name.PointerChainTooLong):
        return "has a compressed name that points ahead or in a circle"
    return "cannot be read"
