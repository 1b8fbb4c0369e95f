"""Create status pages and related objects, as production does."""

from __future__ import annotations

import io
import itertools
import struct
import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.test import Client
from PIL import Image

from accounts.models import User
from core.clock import utc_now
from monitors.models import Monitor
from projects.access import Caller
from statuspages import caching, subscriptions
from statuspages.models import StatusPage, Subscriber
from statuspages.services import create_page

_numbers = itertools.count(1)


def make_page(owner: User, monitors: Sequence[Monitor], **given: Any) -> StatusPage:
    """Create a page with these monitors in one group, each under the name `Shown <n>`, by default at a unique slug."""
    number = next(_numbers)
    shown = [{"monitor_id": m.public_id, "name": f"Shown {n}"} for n, m in enumerate(monitors, start=1)]
    given = {"name": "Shop status", "slug": f"shop-{number}", "groups": [{"name": "Shop", "monitors": shown}]} | given
    return create_page(Caller(owner), given, now=utc_now())


def make_subscriber(page: StatusPage, *, email: str | None = None, now: datetime | None = None) -> Subscriber:
    """Create a confirmed subscriber."""
    now = now or utc_now()
    subscriptions.subscribe(page.pk, email or f"reader{next(_numbers)}@example.com", now=now)
    made = Subscriber.objects.filter(page=page).latest("pk")
    made.mails.all().delete()
    Subscriber.objects.filter(pk=made.pk).update(confirmed_at=now)
    made.refresh_from_db()
    return made


def picture(kind: str = "PNG", *, size: tuple[int, int] = (8, 6), **options: Any) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, "teal").save(out, kind, **options)
    return out.getvalue()


def bomb(width: int, height: int) -> bytes:
    """Return a valid PNG of black pixels: small to send, and large when decoded."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packed, row = zlib.compressobj(), bytes(1 + (width + 7) // 8)
    rows = b"".join(packed.compress(row) for _ in range(height)) + packed.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def slow_jpeg(*, side: int = 2_048, scans: int = 54_000) -> bytes:
    """Return a progressive JPEG of 1 MB that takes a decoder some 15 s: each scan is 19 bytes and visits all blocks."""

    def segment(marker: int, data: bytes) -> bytes:
        return b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data

    blocks = (side // 8) ** 2
    tables = segment(0xDB, b"\0" + b"\1" * 64) + segment(0xC2, struct.pack(">BHHB", 8, side, side, 1) + b"\1\x11\0")
    # One code each, the bit 0: "no difference", and "the next 16384 + n blocks are empty" with n in 14 bits.
    tables += segment(0xC4, b"\0\1" + bytes(16)) + segment(0xC4, b"\x10\1" + bytes(15) + b"\xe0")
    runs = ("0" + "1" * 14) * -(-blocks // 32_767)
    runs += "1" * (-len(runs) % 8)
    empty = int(runs, 2).to_bytes(len(runs) // 8, "big").replace(b"\xff", b"\xff\0")
    first = segment(0xDA, b"\1\1\0\0\0\0") + bytes(blocks // 8 + 1)
    return b"\xff\xd8" + tables + first + (segment(0xDA, b"\1\1\0\1\x3f\0") + empty) * scans + b"\xff\xd9"


def look(path: str, *, host: str = "testserver", **headers: str) -> Any:
    """Return the response for a reader without cookies, with an empty cache."""
    caching.clear_local_caches()
    return Client(raise_request_exception=False).get(path, headers={"host": host, **headers})
