"""The targets of a run: one server, whose paths are up or down by the script.

    python -m tests.faults.target SCRIPT LOG ADDRESS

It listens on a free port of ADDRESS and prints the port. It reads the start of the run, in seconds since the epoch, as
a line from standard input; until then everything is in its first state. LOG gets a line for each request: time, number
of the part, run id or `-`, and whether it was up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TextIO

from tests.faults.script import Part, part_from_json

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
_ERROR = b"HTTP/1.1 500 Broken\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"


class Target:
    def __init__(self, parts: dict[int, Part], log: TextIO) -> None:
        self._parts = parts
        self._log = log
        self._start: float | None = None

    def begin(self) -> None:
        """The driver has written a line."""
        asyncio.get_running_loop().remove_reader(sys.stdin)
        self._start = float(sys.stdin.readline())

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                await self._answer(reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        request, *lines = head.split("\r\n")
        method, path, _ = request.split(" ", 2)
        headers = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
        part = self._parts[int(path.strip("/"))]
        now = time.time()
        up = part.is_up(0.0 if self._start is None else now - self._start)
        # Flush each line, in case this process is killed.
        self._log.write(f"{now:.6f} {part.number} {headers.get('pulsekeeper-run-id', '-')} {up:d}\n")
        self._log.flush()
        await asyncio.sleep(part.delay_sec)
        if not up and part.down == "hang":
            await reader.read()  # until the caller hangs up
        elif not up and part.down == "reset":
            writer.transport.abort()
        else:
            writer.write((_OK if up else _ERROR) + (b"" if method == "HEAD" else b"ok"))
            await writer.drain()


async def serve(parts: dict[int, Part], log: TextIO, address: str) -> None:
    target = Target(parts, log)
    asyncio.get_running_loop().add_reader(sys.stdin, target.begin)
    server = await asyncio.start_server(target.answer, address, 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await server.serve_forever()


def main() -> None:
    parts = [part_from_json(given) for given in json.loads(Path(sys.argv[1]).read_text())["parts"]]
    with Path(sys.argv[2]).open("a") as log:
        asyncio.run(serve({part.number: part for part in parts}, log, sys.argv[3]))


if __name__ == "__main__":
    main()
