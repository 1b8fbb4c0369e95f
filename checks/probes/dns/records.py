"""The normal form of a record: one text for all its spellings, received or expected. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from functools import lru_cache

import dns.exception
import dns.name
import dns.rdata
import dns.tokenizer

from checks.probes.dns.wire import Names, Record, read_record
from checks.probes.target import BadHostError, ascii_host
from core.text import printable, quote

_EXAMPLES = {
    "A": "192.0.2.1",
    "AAAA": "2001:db8::1",
    "CAA": '0 issue "ca.example.net"',
    "CNAME": "www.example.com",
    "DNSKEY": "257 3 13 mdsswUyr3DPW132mOi8V9xESWE8jTo0dxCjjnopKl+GqJxpVXckHAeF+KkxLbxILfDLUT0rAK9iUzy1L53eKGQ==",
    "DS": "60485 5 1 2bb183af5f22588179a53b0a98631fad1a292118",
    "MX": "10 mail.example.com",
    "NS": "ns1.example.com",
    "PTR": "host.example.com",
    "SOA": "ns1.example.com hostmaster.example.com 2026010101 7200 3600 1209600 3600",
    "SRV": "0 5 5060 sip.example.com",
    "TXT": "v=spf1 -all",
}
_KEPT_CHARS = 300
_MAX_KEPT = 256
# Outside of these, a zone file's comments, parentheses and name of the zone would be read as something else.
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\\.')
_ZONE_FILE = re.compile(r"[;()]|(?<!\S)@(?!\S)")
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F)}  # no database stores a zero byte


def normal_record(record_type: str, text: str) -> str:
    """Return the normal form of a record in presentation format. Raises ValueError, with a sentence.

    Names are in lower case without the final dot, and the strings of a TXT record are joined, without quotes.
    """
    if record_type == "TXT" and not text.startswith('"'):
        return text.translate(_CONTROLS)
    bad = ValueError(f"{quote(text)} is not a valid {record_type} record; write it like {_EXAMPLES[record_type]}")
    if not text.isprintable() or _ZONE_FILE.search(_QUOTED.sub("x", text)):
        raise bad
    try:
        if record_type == "TXT":
            tokens = dns.tokenizer.Tokenizer(text).get_remaining()
            return _normal_text(b"".join(token.unescape_to_bytes().value for token in tokens))
        if record_type != "CAA":
            text = " ".join(part if part.isascii() else ascii_host(part) for part in text.split())
        wire = dns.rdata.from_text("IN", record_type, text, origin=dns.name.root, relativize=False).to_wire()
        assert wire is not None
        return normal_form(read_record(record_type, Names(wire), 0, len(wire)))
    except (dns.exception.DNSException, BadHostError, ValueError):
        raise bad from None


@lru_cache(maxsize=256)
def normal_records(record_type: str, texts: tuple[str, ...]) -> frozenset[str]:
    return frozenset(normal_record(record_type, text) for text in texts)


def normal_form(record: Record) -> str:
    if not isinstance(record.value, str):
        return _normal_text(b"".join(record.value))
    match record.kind:
        case "CAA":
            flags, tag, value = record.value.split(" ", 2)
            return f"{flags} {tag.lower()} {value}"
        case "A" | "AAAA" | "DNSKEY" | "DS":
            return record.value
    # Numbers and names: a blank inside of a name is escaped.
    parts = record.value.lower().split(" ")
    return " ".join(part if part == "." else part.removesuffix(".") for part in parts)


def kept_set(records: Collection[str]) -> tuple[str, ...]:
    """Return what is stored of a set of records, to notice that it changes. Of a large set, the rest is a digest."""
    ordered = sorted(records)
    kept = list(map(kept_form, ordered[:_MAX_KEPT]))
    if rest := ordered[_MAX_KEPT:]:
        kept.append(f"… and {len(rest):,} more ({_digest(chr(10).join(rest))})")
    return tuple(sorted(kept))


def kept_form(record: str) -> str:
    """Return the record, or of a long or unprintable one its beginning and a digest, so that it stays distinct."""
    shown = printable(record[:_KEPT_CHARS])
    if shown == record:
        return record
    return f"{shown}… ({_digest(record)})"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _normal_text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace").translate(_CONTROLS)
