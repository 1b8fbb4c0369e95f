"""The tcp protocol: TCP, TLS and STARTTLS. Its entry is `probe.TcpProbe`; `spec` is light and needs no loop."""

from checks.probes.tcp.spec import STARTTLS_PROTOCOLS, TcpSpec, parse_tcp

__all__ = ["STARTTLS_PROTOCOLS", "TcpSpec", "parse_tcp"]
