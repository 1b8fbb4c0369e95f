"""The process that plays a row: `python -m benchmarks.fairness.attacker`.

It reads what to play as a JSON line from standard input and says when it has begun. It plays until its input ends, and
prints how many requests it sent, and how many answers of which status it got.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections import Counter
from typing import Any

from benchmarks.fairness.client import Front
from benchmarks.fairness.rows import ROWS, Attacker


async def attack(given: dict[str, Any]) -> None:
    front, counts = Front(given["front"]["port"], given["front"]["name"]), Counter[str]()
    attackers = [
        Attacker(front, one["address"], number, len(given["attackers"]), one["own"], given["facts"], counts)
        for number, one in enumerate(given["attackers"])
    ]
    play = ROWS[given["row"]].play
    playing = [asyncio.ensure_future(play(attacker)) for attacker in attackers]
    await asyncio.sleep(0)  # the first requests are sent
    print("true", flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    await asyncio.wait([*playing, asyncio.ensure_future(ended.wait())], return_when=asyncio.FIRST_COMPLETED)
    broken = [repr(each.exception()) for each in playing if each.done()]
    print(json.dumps({"counts": counts, "broken": broken[:1]}), flush=True)


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Whatever still runs ends with this process.
    asyncio.run(attack(json.loads(sys.stdin.readline())), debug=False)


if __name__ == "__main__":
    main()
