"""Text rules and charsets."""

from __future__ import annotations

import codecs

from tests.targets.catalogue.case import MIB, UNLIMITED, Group, contains, lacks
from tests.targets.server import Repeat, Script, answer

GROUP = Group("Text and charsets")
up, down = GROUP.up, GROUP.down


def page(body: bytes, content_type: str | None = None) -> Script:
    return [answer(200, body, *([] if content_type is None else [f"Content-Type: {content_type}"]))]


GREEN = [contains("grün")]
for name, about, script in (
    ("utf-8", "Sends UTF-8 without declaring it.", page("grün".encode())),
    ("declared-utf-8", "Declares UTF-8.", page("grün".encode(), "text/html; charset=utf-8")),
    ("latin-1", "Declares Latin-1.", page("grün".encode("latin-1"), "text/html; charset=ISO-8859-1")),
    ("quoted", "Quotes the charset.", page("grün".encode("latin-1"), 'text/html; Charset="latin1"; x=y')),
    ("windows-1252", "Declares Windows-1252.", page("grün".encode("cp1252"), "text/html; charset=windows-1252")),
    ("utf-16", "Marks UTF-16 by its first bytes.", page("grün".encode("utf-16"))),
    ("utf-16-be", "Marks big-endian UTF-16.", page(codecs.BOM_UTF16_BE + "grün".encode("utf-16-be"))),
    ("utf-32", "Marks UTF-32.", page("grün".encode("utf-32"))),
    (
        "declared-utf-16",
        "Declares UTF-16 without a mark.",
        page("grün".encode("utf-16-le"), "text/plain; charset=utf-16le"),
    ),
    ("utf-8-mark", "Marks UTF-8.", page(codecs.BOM_UTF8 + "grün".encode())),
    ("unknown", "Declares a charset that does not exist.", page("grün".encode(), "text/html; charset=martian")),
    ("hostile", "Declares a codec that makes no text.", page("grün".encode(), "text/html; charset=zlib")),
    ("empty", "Declares an empty charset.", page("grün".encode(), "text/html; charset=")),
    (
        "broken-bytes",
        "Sends bytes that are not UTF-8 around the word.",
        page(b"\xff\xfe\xfd".join([b"", "grün".encode(), b""])[1:], "text/html; charset=utf-8"),
    ),
    ("no-type", "Sends an invalid Content-Type.", page("grün".encode(), "\xff;;=")),
):
    up(f"charset-{name}", about, script, content_rules=GREEN)
up(
    "charset-japanese",
    "Declares Shift JIS.",
    page("監視".encode("shift_jis"), "text/html; charset=Shift_JIS"),
    content_rules=[contains("監視")],
)
down(
    "charset-lie",
    "Declares UTF-8 and sends Latin-1.",
    page("grün".encode("latin-1"), "text/html; charset=utf-8"),
    "content_failure",
    "does not contain",
    http_status=200,
    content_rules=GREEN,
)

END = [contains("the end")]
up("text-present", "Sends the word that must be there.", page(b"this is the end."), content_rules=END)
up("text-absent", "Sends no word that must be absent.", page(b"all is well"), content_rules=[lacks("error")])
up(
    "text-error-page-expected",
    "Answers the 503 that is expected, with the word.",
    [answer(503, b"the end")],
    http_status=503,
    expect_status=503,
    content_rules=END,
)
for name, about, script, words, rules in (
    ("missing", "Sends a page without the word.", page(b"something else"), "does not contain", END),
    ("case", "Sends the word in other letters.", page(b"The End"), "does not contain", END),
    ("nothing", "Sends an empty body where the word must be.", page(b""), "does not contain", END),
    ("no-content", "Answers 200 without any body.", [b"HTTP/1.1 200 OK\r\n\r\n"], "does not contain", END),
    (
        "forbidden",
        "Sends the word that must be absent.",
        page(b"an error occurred"),
        "must be absent",
        [lacks("error")],
    ),
    (
        "second-rule",
        "Breaks the second of three rules.",
        page(b"the end"),
        "beginning",
        [*END, contains("beginning"), lacks("end")],
    ),
    (
        "controls",
        "Sends control characters where a rule names some.",
        page(b"\x1b[31m\0\x07"),
        "must be absent",
        [lacks("\x1b[31m")],
    ),
    ("beyond-cap", "Sends the word behind the first MiB.", page(b"x" * MIB + b"the end"), "first MiB", END),
    (
        "across-cap",
        "Sends the word across the end of the first MiB.",
        page(b"x" * (MIB - 3) + b"the end"),
        "first MiB",
        END,
    ),
):
    down(f"text-{name}", about, script, "content_failure", words, http_status=200, content_rules=rules)
down(
    "text-404",
    "Answers 404 with the word.",
    [answer(404, b"the end")],
    "http_failure",
    "404",
    http_status=404,
    content_rules=END,
)
up("text-at-cap", "Sends the word at the end of exactly 1 MiB.", page(b"x" * (MIB - 7) + b"the end"), content_rules=END)
up(
    "text-endless",
    "Sends the word, and then a body without end.",
    [UNLIMITED, b"the end", Repeat(b"x" * 65536)],
    content_rules=END,
)
up("text-keyword", "Sends the word to a keyword monitor.", page(b"the end"), type="keyword", content_rules=END)
