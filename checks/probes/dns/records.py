"""The normal form of a record: one text for all its spellings, received or expected. Pure."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

import dns.exception
import dns.name
import dns.rdata
import dns.tokenizer
from dns.rdata import Rdata, RdataStyle

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
_STYLE = RdataStyle(base64_chunk_size=0, hex_chunk_size=0)  # keys and digests without blanks
_KEPT_CHARS = 300
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
        return normal_form(dns.rdata.from_text("IN", record_type, text, origin=dns.name.root, relativize=False))
    except (dns.exception.DNSException, BadHostError, ValueError):
        raise bad from None


@lru_cache(maxsize=256)
def normal_records(record_type: str, texts: tuple[str, ...]) -> frozenset[str]:
    return frozenset(normal_record(record_type, text) for text in texts)


def presentation(rdata: Rdata) -> str:
    return rdata.to_styled_text(_STYLE)


def normal_form(rdata: Rdata) -> str:
    match rdata.rdtype.name:
        case "TXT":
            return _normal_text(b"".join(rdata.strings))  # type: ignore[attr-defined]
        case "CAA":
            flags, tag, value = presentation(rdata).split(" ", 2)
            return f"{flags} {tag.lower()} {value}"
        case "A" | "AAAA" | "DNSKEY" | "DS":
            return presentation(rdata)
    # Numbers and names: a blank inside of a name is escaped.
    parts = presentation(rdata).lower().split(" ")
    return " ".join(part if part == "." else part.removesuffix(".") for part in parts)


def kept_form(record: str) -> str:
    """Return the record, or of a long or unprintable one its beginning and a digest, so that it stays distinct."""
    shown = printable(record[:_KEPT_CHARS])
    if shown == record:
        return record
    digest = hashlib.blake2b(record.encode(), digest_size=8).hexdigest()
    return f"{shown}… ({digest})"


def _normal_text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace").translate(_CONTROLS)
