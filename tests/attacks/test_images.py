"""Logos that are small to send and large to decode, sent to a running Pulsekeeper."""

from __future__ import annotations

import io
from base64 import b64encode
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psutil
import requests
from PIL import Image

from tests.processes.client import PASSWORD, Client, manage
from tests.processes.conftest import data_dir, start
from tests.processes.up import Start, Up

__all__ = ["data_dir", "start"]  # fixtures, which pytest finds by their names

AT_ONCE = 8
MOST_GROWTH = 150 * 1024 * 1024
FORMATS = {"PNG": {}, "WEBP": {"lossless": True}, "GIF": {}, "JPEG": {"progressive": True}}


def logo(kind: str, side: int) -> str:
    out = io.BytesIO()
    Image.new("RGB", (side, side), "teal").save(out, kind, **FORMATS[kind])
    return b64encode(out.getvalue()).decode()


def peak(up: Up) -> int:
    """The most bytes that each living process of the web server has had in memory, added up."""
    web = psutil.Process(up.pid_of("web"))
    statuses = [Path(f"/proc/{one.pid}/status").read_text() for one in (web, *web.children(recursive=True))]
    return sum(int(text.partition("VmHWM:")[2].split()[0]) * 1024 for text in statuses)


def test_pictures_take_bounded_memory_and_leave_the_others_alone(
    start: Start, clean_environment: dict[str, str]
) -> None:
    pictures = [logo(kind, side) for side in (4_096, 2_048) for kind in FORMATS for _ in range(2)]
    up = start(ADMIN_PASSWORD=PASSWORD)
    up.wait_until_up()
    manage(
        up,
        "from accounts.services import create_account\n"
        f"create_account(email='other@example.com', password={PASSWORD!r}, plan='free')",
        clean_environment,
    )
    with Client(up) as attacker, Client(up, "other@example.com") as other, ThreadPoolExecutor() as pool:
        logo_path = f"/status-pages/{attacker.post('/status-pages', {'name': 'A', 'slug': 'aa'})['id']}/logo"
        other.post("/status-pages", {"name": "Other", "slug": "other", "published": True})
        page = f"http://127.0.0.1:{up.port}/status/other"
        assert requests.get(page, timeout=30).status_code == 200
        assert attacker.send("PUT", logo_path, {"image": logo("PNG", 8)}).status_code == 200
        before = peak(up)

        found: list[Future[requests.Response]] = []
        seen: Counter[int] = Counter()
        for first in range(0, len(pictures), AT_ONCE):
            found += [
                pool.submit(attacker.send, "PUT", logo_path, {"image": picture})
                for picture in pictures[first : first + AT_ONCE]
            ]
            while not all(one.done() for one in found):
                seen[requests.get(page, timeout=30).status_code] += 1
                seen[other.send("GET", "/monitors").status_code] += 1
        assert peak(up) - before < MOST_GROWTH
        assert seen.keys() == {200}

        # Too large, decoded, or refused while another one was decoded.
        assert {one.result().status_code for one in found[:AT_ONCE]} <= {422, 429}
        assert {one.result().status_code for one in found[AT_ONCE:]} <= {200, 429}
        assert 200 in {one.result().status_code for one in found}
        # Of 20 in ten minutes, 17 were sent.
        last = [attacker.send("PUT", logo_path, {"image": logo("PNG", 8)}) for _ in range(4)]
        assert [answer.status_code for answer in last] == [200, 200, 200, 429]
        assert int(last[-1].headers["Retry-After"]) > 0
