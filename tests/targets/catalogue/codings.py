"""Content codings: decoded, declared wrongly, and bombs."""

from __future__ import annotations

import zlib

from tests.targets.catalogue.case import CHUNKED, MIB, Group, chunk, contains, holds, lacks, squeezed
from tests.targets.server import Repeat, answer

GROUP = Group("Compression: bombs, lies and oddities")
up, down = GROUP.up, GROUP.down

END = [contains("the end")]
_ZEROS = squeezed(b"0" * (16 * MIB))
_CHUNKED_GZIP = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")


def coded(body: bytes, coding: str, *, status: int = 200) -> list[bytes]:
    return [answer(status, body, f"Content-Encoding: {coding}")]


def raw_deflate(body: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(body) + compressor.flush()


for name, about, script in (
    ("gzip", "Sends gzip.", coded(squeezed(b"the end"), "gzip")),
    ("x-gzip", "Calls gzip by its old name.", coded(squeezed(b"the end"), "x-gzip")),
    ("upper-case", "Writes GZIP in capitals.", coded(squeezed(b"the end"), "GZIP")),
    ("deflate", "Sends deflate in the zlib format.", coded(zlib.compress(b"the end"), "deflate")),
    ("deflate-raw", "Sends deflate without the zlib format.", coded(raw_deflate(b"the end"), "deflate")),
    ("identity", "Declares that nothing is coded.", coded(b"the end", "identity")),
    ("two-members", "Sends gzip in two members.", coded(squeezed(b"the ") + squeezed(b"end"), "gzip")),
    ("padding", "Sends bytes after the end of gzip.", coded(squeezed(b"the end") + b"garbage", "gzip")),
    ("twice", "Compresses twice, as declared.", coded(squeezed(squeezed(b"the end")), "gzip, gzip")),
    ("mixed", "Compresses with deflate and then gzip.", coded(squeezed(zlib.compress(b"the end")), "deflate, gzip")),
    (
        "chunked",
        "Sends gzip in chunks of a byte.",
        [_CHUNKED_GZIP, b"".join(chunk(bytes([b])) for b in squeezed(b"the end")), b"0\r\n\r\n"],
    ),
    ("unasked", "Calls plain text UTF-8 coded.", coded(b"the end", "UTF-8")),
):
    up(f"coding-{name}", about, script, content_rules=END)

up("coding-empty", "Declares gzip and sends no body.", coded(b"", "gzip"))
up("coding-unknown", "Sends a coding that was not requested, and no rule reads it.", coded(b"\x0b\x02\x80", "br"))
down(
    "coding-unknown-rule",
    "Sends a coding that was not requested, and a rule reads it.",
    coded(b"\x0b\x02\x80", "br"),
    "content_failure",
    '"br"',
    http_status=200,
    content_rules=END,
)
for name, about, script, words, rules in (
    ("plain", "Declares gzip and sends plain text.", coded(b"plain text", "gzip"), "Content-Encoding", []),
    (
        "plain-rule",
        "Declares gzip and sends plain text that contains the word.",
        coded(b"the end", "gzip"),
        "Content-Encoding",
        END,
    ),
    ("deflate", "Declares deflate and sends plain text.", coded(b"plain text", "deflate"), "Content-Encoding", []),
    (
        "gzip-as-deflate",
        "Declares gzip and sends deflate.",
        coded(zlib.compress(b"the end"), "gzip"),
        "Content-Encoding",
        [],
    ),
    (
        "checksum",
        "Sends gzip with a wrong checksum.",
        coded(squeezed(b"the end")[:-8] + bytes(8), "gzip"),
        "Content-Encoding",
        [],
    ),
    (
        "twice",
        "Declares gzip twice and compresses once.",
        coded(squeezed(b"the end"), "gzip, gzip"),
        "Content-Encoding",
        [],
    ),
    ("bomb", "Sends 16 MiB of zeros in gzip where JSON is read.", coded(_ZEROS, "gzip"), "too large", [holds("a")]),
    (
        "bomb-twice",
        "Sends 16 MiB of zeros in gzip within gzip.",
        coded(squeezed(_ZEROS), "gzip, gzip"),
        "too large",
        [holds("a")],
    ),
    (
        "bomb-word",
        "Sends the word behind 16 MiB of zeros in gzip.",
        coded(squeezed(b"0" * (16 * MIB) + b"the end"), "gzip"),
        "first MiB",
        END,
    ),
):
    down(
        f"coding-lie-{name}" if "bomb" not in name else f"coding-{name}",
        about,
        script,
        "content_failure",
        words,
        http_status=200,
        content_rules=rules,
    )
down(
    "coding-lie-500",
    "Answers 500 with a body that is not what it declares.",
    coded(b"plain text", "gzip", status=500),
    "http_failure",
    "500",
    http_status=500,
)
for name, about, body, coding in (
    ("gzip", "Ends gzip early, at the announced length.", squeezed(b"the end" * 99)[:-12], "gzip"),
    ("checksum", "Ends gzip before its checksum.", squeezed(b"the end")[:-8], "gzip"),
    ("header", "Ends gzip in the middle of its header.", squeezed(b"the end")[:5], "gzip"),
    ("deflate", "Ends deflate early.", zlib.compress(b"the end" * 99)[:-6], "deflate"),
    ("member", "Ends the second member of gzip early.", squeezed(b"a") + squeezed(b"the end")[:-3], "gzip"),
):
    down(f"coding-cut-{name}", about, coded(body, coding), "partial_response", "cut short", http_status=200)
up("coding-bomb-unread", "Sends 16 MiB of zeros in gzip, and no rule reads them.", coded(_ZEROS, "gzip"))
up(
    "coding-bomb-word-first",
    "Sends the word before 16 MiB of zeros in gzip.",
    coded(squeezed(b"the end" + b"0" * (16 * MIB)), "gzip"),
    content_rules=END,
)
up(
    "coding-one-mib",
    "Sends gzip of exactly 1 MiB, the word at its end.",
    coded(squeezed(b"x" * (MIB - 7) + b"the end"), "gzip"),
    content_rules=[*END, lacks("error")],
)
up(
    "coding-endless",
    "Sends gzip of zeros without end.",
    [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", Repeat(_ZEROS)],
)
