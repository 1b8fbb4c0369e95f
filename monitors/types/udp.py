from __future__ import annotations

from checks.probes.udp import MAX_BODY, UdpSpec, parse_udp
from monitors.types.base import Origin, ServerType
from monitors.types.content import TEXT_RULES, ContentSettings, content_of
from monitors.types.settings import MonitorConfig

REPRODUCE = """\
python3 - <<'END'
import socket
family, kind, _, _, address = socket.getaddrinfo({host!r}, {port}, type=socket.SOCK_DGRAM)[0]
with socket.socket(family, kind) as udp:
    udp.settimeout({seconds})
    udp.connect(address)
    udp.send(bytes.fromhex("{body}"))
    print(udp.recv(65536))
END"""


class Udp(ServerType):
    """A UDP service that replies: without a reply, a datagram proves nothing."""

    name = "udp"
    label = "UDP"
    icon = "send"
    description = "Sends a datagram to a port and waits for a reply."
    schemes = ("udp",)
    example = "udp://game.example:27015"
    helps = {  # noqa: RUF012
        "url": "A name or an IP address. The check passes only if the service replies.",
        "request_body": "The datagram to send, at most 512 bytes. Lines end with LF. Empty: no bytes.",
    }
    settings = ContentSettings
    unasked = frozenset({"check_ssl"})
    rule_types = TEXT_RULES
    rules_help = "Optional: what the reply must contain, or must not contain."
    max_body_bytes = MAX_BODY

    def parse(self, url: str) -> Origin:
        return parse_udp(url).origin

    def spec(self, config: MonitorConfig, *, run_id: str) -> UdpSpec:
        own, server = content_of(config), parse_udp(config.url)
        return UdpSpec(
            host=server.host,
            port=server.port,
            timeout_ms=config.timeout_ms,
            slow_ms=config.slow_ms,
            body=own.body_bytes() or b"",
            rules=own.probe_rules(),
            as_hex=own.is_binary,
        )

    def reproduce(self, config: MonitorConfig) -> str:
        # netcat sends no empty datagrams, and its options depend on the system.
        server, body = parse_udp(config.url), content_of(config).body_bytes() or b""
        return REPRODUCE.format(
            host=server.host, port=server.port, body=body.hex(), seconds=f"{config.timeout_ms / 1000:g}"
        )
