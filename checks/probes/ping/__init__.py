"""The ping protocol: ICMP echo requests to one host."""

from checks.probes.ping.spec import MAX_PACKETS, PingSpec, parse_ping

__all__ = ["MAX_PACKETS", "PingSpec", "parse_ping"]
