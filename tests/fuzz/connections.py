"""Hostile TCP servers: greetings, dialogues up to TLS, TLS records, and content."""

from __future__ import annotations

import random
import ssl
from dataclasses import dataclass

from checks.probes.tcp.spec import STARTTLS_PROTOCOLS, TcpSpec
from checks.spec import ContentRule, RuleType
from tests.fuzz.verdicts import SECRET
from tests.targets.catalogue.starttls import PROTOCOLS
from tests.targets.server import Expect, Hang, HangUp, Listen, Pause, Reset, Script, StartTls, Step

_PIECES = (
    *(b"", b"ok", b"\0", b"\xff", b"\xc3", b"\xed\xa0\x80", "\u202e\u2028\u200f".encode(), b"\r", b"\n", b"\r\n"),
    *(b"\x1b[2J", b"220 ", b"220-", b"250-STARTTLS\r\n", b"* OK ", b"a OK ", b"+OK", b"234 ", b"S", b"N"),
    *(f"\n{said}{SECRET}\r\n".encode() for said in ("token=", "Bearer ", "554 password: ")),
)
_VALUES = ("ok", "ff00", "é", "\x00", "\ufffd", "0")
_DIALOGUES = {protocol.name: protocol for protocol in PROTOCOLS}


@dataclass(frozen=True)
class Shot:
    """A script and its check. `direct`: a server that starts with TLS."""

    script: Script
    spec: TcpSpec
    direct: bool


def noise(chance: random.Random) -> bytes:
    kind = chance.randrange(10)
    if kind == 0:
        return chance.randbytes(chance.choice([1, 1_000, 70_000]))
    if kind == 1:
        return chance.choice(_PIECES) * chance.choice([10, 1_000, 20_000])
    return b"".join(chance.choice((*_PIECES, chance.randbytes(3))) for _ in range(chance.randrange(12)))


def records(chance: random.Random) -> bytes:
    """Return TLS records, some of them with a wrong length, or the beginning of a message of the handshake."""
    found = b""
    for _ in range(chance.randrange(1, 5)):
        content = chance.randbytes(chance.choice([0, 1, 2, 60, 2_000, 16_384]))
        kind = chance.choice([20, 21, 22, 22, 22, 23, 24, 255])
        if kind == 22:
            content = bytes([chance.choice([0, 1, 2, 2, 4, 8, 11, 22, 24])]) + content
        length = chance.choice([len(content)] * 4 + [0, 0xFFFF])
        found += bytes([kind]) + chance.choice([b"\x03\x03", b"\x03\x01", b"\x00\x00"]) + length.to_bytes(2, "big")
        found += content
    return found


def _mutated(step: Step, chance: random.Random) -> list[Step]:
    kind = chance.randrange(12)
    if kind == 0:
        return []
    if kind == 1:
        return [step, step]
    if isinstance(step, Expect):
        return [Listen()] if kind == 2 else [step]
    if not isinstance(step, bytes):
        return [step]
    if kind == 2:
        return [step[: chance.randrange(len(step))], Pause(0.01), noise(chance)]
    if kind == 3:
        place = chance.randrange(len(step))
        return [step[:place] + noise(chance) + step[place:]]
    if kind == 4:
        return [step, noise(chance)]
    return [step]


def shot(chance: random.Random, host: str, context: ssl.SSLContext) -> Shot:
    steps: list[Step] = []
    protocol, tls = None, chance.random() < 0.5
    direct = tls and chance.random() < 0.3
    if tls and not direct:
        protocol = chance.choice(STARTTLS_PROTOCOLS)
        known = _DIALOGUES[protocol]
        for step in (*known.dialogue, chance.choice([known.go, known.go, known.refusal])):
            steps += _mutated(step, chance)
        if chance.random() < 0.5:
            steps.append(StartTls(context))
    elif tls and chance.random() < 0.5:
        direct = False
        steps += [Listen(), records(chance)]
    for _ in range(chance.randrange(4)):
        steps += [noise(chance), Pause(chance.choice([0.0, 0.0, 0.02]))]
    steps += chance.choice([[], [], [Hang()], [HangUp()], [Reset()]])
    rules = tuple(
        ContentRule(chance.choice(tuple(RuleType)[:2]), chance.choice(_VALUES))
        for _ in range(chance.choice([0, 1, 1, 4]))
    )
    spec = TcpSpec(
        host=host,
        port=1,
        tls=tls,
        starttls=protocol,
        check_ssl=chance.random() < 0.5,
        body=chance.choice([None, b"", chance.randbytes(100), bytes(100_000)]),
        rules=rules,
        as_hex=chance.random() < 0.5,
        timeout_ms=chance.choice([200, 400]),
    )
    return Shot(steps, spec, direct)
