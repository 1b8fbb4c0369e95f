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

from tests.attacks.conftest import Stage

AT_ONCE = 8
MOST_GROWTH = 150 * 1024 * 1024
FORMATS = {"PNG": {}, "WEBP": {"lossless": True}, "GIF": {}, "JPEG": {"progressive": True}}


def logo(kind: str, side: int) -> str:
    out = io.BytesIO()
    Image.new("RGB", (side, side), "teal").save(out, kind, **FORMATS[kind])
    return b64encode(out.getvalue()).decode()


def peak(stage: Stage, *, reset: bool = False) -> int:
    """Return the sum of the peak memory of the web server's processes, in bytes; `reset` starts measuring."""
    web = psutil.Process(stage.up.pid_of("web"))
    processes = [Path(f"/proc/{one.pid}") for one in (web, *web.children(recursive=True))]
    if reset:
        for process in processes:
            (process / "clear_refs").write_text("5")  # proc(5): VmHWM starts again from what is used now
    statuses = [(process / "status").read_text() for process in processes]
    return sum(int(text.partition("VmHWM:")[2].split()[0]) * 1024 for text in statuses)


def test_pictures_take_bounded_memory_and_leave_the_others_alone(stage: Stage) -> None:
    pictures = [logo(kind, side) for side in (4_096, 2_048) for kind in FORMATS for _ in range(2)]
    attacker, other = stage.attacker, stage.neighbour
    logo_path = f"/status-pages/{attacker.post('/status-pages', {'name': 'A', 'slug': 'aa'})['id']}/logo"
    other.post("/status-pages", {"name": "Other", "slug": "other", "published": True})
    page = f"{stage.address}/status/other"
    assert requests.get(page, timeout=30).status_code == 200
    assert attacker.send("PUT", logo_path, {"image": logo("PNG", 8)}).status_code == 200
    with ThreadPoolExecutor() as pool:
        before = peak(stage, reset=True)

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
        assert peak(stage) - before < MOST_GROWTH
        assert seen.keys() == {200}

        # Too large, decoded, or refused while another one was decoded.
        assert {one.result().status_code for one in found[:AT_ONCE]} <= {422, 429}
        assert {one.result().status_code for one in found[AT_ONCE:]} <= {200, 429}
        assert 200 in {one.result().status_code for one in found}
        # Of 20 in ten minutes, 17 were sent.
        last = [attacker.send("PUT", logo_path, {"image": logo("PNG", 8)}) for _ in range(4)]
        assert [answer.status_code for answer in last] == [200, 200, 200, 429]
        assert int(last[-1].headers["Retry-After"]) > 0
