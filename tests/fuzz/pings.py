"""Possible responses to an echo request: replies and errors, intact, damaged, foreign or late, and noise."""

from __future__ import annotations

import random

from tests.targets.pings import WORKER_V4, WORKER_V6, Answer, other_identifier, other_payload, other_sequence, packet

CHANGES = (bytes, bytes, bytes, other_identifier, other_sequence, other_payload)
TYPES = (0, 1, 2, 3, 4, 5, 8, 11, 12, 128, 129)


def hostile(chance: random.Random, host: str) -> Answer:
    """Return the response to one request, mostly close to a valid one."""
    if chance.random() < 0.05:
        noise = chance.randbytes(chance.randrange(200))
        if chance.random() < 0.5:
            noise = packet(host, WORKER_V6 if ":" in host else WORKER_V4, noise)
        return Answer(raw=noise or b"\0")
    kind = chance.choice((*TYPES, chance.randrange(256)))
    return Answer(
        copies=chance.choice((0, 1, 1, 1, 2, 5)),
        seconds=chance.choice((0.0, 0.0, 0.0, 0.05, 0.3, 0.9)),
        source=_neighbour(chance, host) if chance.random() < 0.1 else None,
        change=_Change(chance),
        error=(kind, chance.choice((0, 1, 3, 4, chance.randrange(256)))) if chance.random() < 0.3 else None,
        quoted=chance.choice((0, 4, 8, 1_000)),
        checksum=chance.random() < 0.9,
    )


class _Change:
    """Cut, extend or flip bytes of a message, mostly none."""

    def __init__(self, chance: random.Random) -> None:
        self._first = chance.choice(CHANGES)
        self._kept = chance.choice((1.0, 1.0, 1.0, chance.random()))
        self._more = chance.randbytes(chance.choice((0, 0, 0, 1, 40, 1_200)))
        self._flips = [(chance.random(), chance.randrange(256)) for _ in range(chance.choice((0, 0, 0, 1, 8)))]

    def __call__(self, message: bytes) -> bytes:
        changed = bytearray(self._first(message)[: int(len(message) * self._kept)] + self._more)
        for place, value in self._flips:
            if changed:
                changed[int(place * len(changed))] ^= value
        return bytes(changed)


def _neighbour(chance: random.Random, host: str) -> str:
    return f"fd66::9:{chance.randrange(1, 65_536):x}" if ":" in host else f"10.66.9.{chance.randrange(1, 255)}"
