"""Agents that only wait: connections of one process, on which requests for leases follow each other.

    python -m benchmarks.load.idle PORT < CREDENTIALS

It reads one JSON list of credentials, prints a line once each agent has sent a request, and runs until its standard
input ends. Then it prints a JSON object with the requests that were answered, and those that were refused.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from contextlib import suppress

from checks.agent_protocol import LEASES, MAX_LEASES, POLL_SEC

_BODY = json.dumps({"room": MAX_LEASES, "version": "1.0", "protocol": 1, "wait_sec": POLL_SEC})


async def wait_for_checks(port: int, credential: str, delay: float, seen: Counter[str], started: asyncio.Event) -> None:
    await asyncio.sleep(delay)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = (
        f"POST {LEASES} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {credential}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(_BODY)}\r\n\r\n{_BODY}"
    ).encode()
    while True:
        writer.write(request)
        started.set()
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(length)
        is_answer = head.startswith(b"HTTP/1.1 200")
        seen["answers" if is_answer else "refusals"] += 1
        if not is_answer:
            await asyncio.sleep(1.0)


async def main(port: int) -> None:
    loop = asyncio.get_running_loop()
    credentials = json.loads(await loop.run_in_executor(None, sys.stdin.readline))
    seen: Counter[str] = Counter(answers=0, refusals=0)
    started = [asyncio.Event() for _ in credentials]
    async with asyncio.TaskGroup() as group:
        agents = [
            group.create_task(wait_for_checks(port, credential, POLL_SEC * number / len(credentials), seen, event))
            for number, (credential, event) in enumerate(zip(credentials, started, strict=True))
        ]
        for event in started:
            await event.wait()
        print(json.dumps("started"), flush=True)
        await loop.run_in_executor(None, sys.stdin.read)
        for agent in agents:
            agent.cancel()
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1])))
