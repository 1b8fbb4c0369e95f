"""Which addresses Pulsekeeper may open a socket to on behalf of a user.

The guard is asked when a socket opens, never only about a name, because the addresses of a name may change before the
connection. Plain Python: probes and deliveries share it.
"""

from __future__ import annotations

import re
import socket
import ssl
import unicodedata
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from urllib.parse import unquote

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# `ipaddress.is_private` of Python 3.11 passes 100.64/10, 64:ff9b::/96 and 2002::/16, and changes between
# patch releases. Hence whole tables of our own, from:
# https://www.iana.org/assignments/iana-ipv4-special-registry
# https://www.iana.org/assignments/multicast-addresses
# Rows that the registry calls globally reachable (AS112, AMT, PCP anycast) are infrastructure, not targets.
_REFUSED_V4 = tuple(
    IPv4Network(row)
    for row in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private use
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, cloud metadata
        "172.16.0.0/12",  # private use
        "192.0.0.0/24",  # IETF protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relay anycast
        "192.168.0.0/16",  # private use
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, limited broadcast
    )
)

# https://www.iana.org/assignments/ipv6-address-space: only this block is global unicast. Everything else
# (::/96, 64:ff9b:1::/48, 100::/64, 5f00::/16, fc00::/7, fe80::/10, fec0::/10, ff00::/8, …) is refused unread.
_GLOBAL_V6 = IPv6Network("2000::/3")

# https://www.iana.org/assignments/iana-ipv6-special-registry, the rows inside 2000::/3
_REFUSED_V6 = tuple(
    IPv6Network(row)
    for row in (
        "2001::/23",  # IETF protocol assignments: Teredo, benchmarking, AMT, ORCHID, drone ids
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)

# Cloud metadata, which serves credentials. No setting allows it.
_METADATA = frozenset(
    {
        IPv4Address("169.254.169.254"),  # most clouds
        IPv4Address("169.254.170.2"),  # AWS ECS
        IPv4Address("169.254.170.23"),  # AWS EKS
        IPv4Address("100.100.100.200"),  # Alibaba Cloud
        IPv4Address("168.63.129.16"),  # Azure, a public address
        IPv6Address("fd00:ec2::254"),  # AWS EC2
        IPv6Address("fd00:ec2::23"),  # AWS EKS
        IPv6Address("fd20:ce::254"),  # Google Cloud
        IPv6Address("fd00:c1::a9fe:a9fe"),  # Oracle Cloud
    }
)

_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are the IPv4 address


def embedded_v4(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that a translator or tunnel derives: ::ffff/96, 64:ff9b::/96, 2002::/16."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv6Address) and (embedded := embedded_v4(address)) is not None:
        address = embedded
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _REFUSED_V4)
    return address in _GLOBAL_V6 and not any(address in network for network in _REFUSED_V6)


@dataclass(frozen=True, slots=True)
class EgressGuard:
    """Permits the `allowed` networks without cloud metadata and, if `public`, public addresses.

    Hashable, so that callers can cache by guard.
    """

    allowed: tuple[Network, ...] = ()
    public: bool = True

    def permits(self, address: Address) -> bool:
        embedded = embedded_v4(address) if isinstance(address, IPv6Address) else None
        if address in _METADATA or embedded in _METADATA:
            return False
        if any(address in network for network in self.allowed):
            return True
        # A dual-stack socket reaches 127.0.0.1 as ::ffff:127.0.0.1 too; tunnelled forms stay refused.
        if isinstance(address, IPv6Address) and (mapped := address.ipv4_mapped) is not None:
            return self.permits(mapped)
        return self.public and _is_public(address)


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse CIDRs separated by commas, as in `ALLOWED_PRIVATE_NETWORKS`. Raises ValueError."""
    networks: list[Network] = []
    for item in text.split(","):
        if not (cidr := item.strip()):
            continue
        try:
            networks.append(ip_network(cidr))
        except ValueError as error:
            raise ValueError(f"{cidr!r} is not a network in CIDR form, like 127.0.0.0/8 or ::1/128: {error}") from error
    return tuple(networks)


_USUAL_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine, macOS, BSD
)


def trusted_file(named: str) -> str | None:
    """Return the PEM file of the certificate authorities to trust: the named one, or else the system's.

    None if there is no such file. The system's is looked for because the wheel's libcurl looks where its build
    machine kept it.
    """
    candidates = [named] if named else [ssl.get_default_verify_paths().openssl_cafile, *_USUAL_FILES]
    return next((name for name in candidates if named or Path(name).is_file()), None)


_IDNA_DOTS = str.maketrans("\u3002", ".")
_BLANK = re.compile(r"\s")


def literal_address(host: str) -> Address | None:
    """Return the address that a URL's host is, or None if it is a name that has to be resolved.

    Accepts what libcurl and getaddrinfo accept: brackets, zone ids, %-escapes, a trailing dot, digits that IDNA maps
    to ASCII, and inet_aton's 127.1, 0x7f.0.0.1, 017700000001 and 2130706433.
    """
    text = host.strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    # The zone first: its % does not start an escape, and it does not change the address.
    if ":" in text:
        text = text.partition("%")[0]
    text = unicodedata.normalize("NFKC", unquote(text)).translate(_IDNA_DOTS).removesuffix(".")
    try:
        return ip_address(text)
    except ValueError:
        pass
    try:
        # glibc ignores what follows a blank.
        return None if _BLANK.search(text) else IPv4Address(socket.inet_aton(text))
    except (OSError, ValueError):
        return None
