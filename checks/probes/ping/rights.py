"""The permission of this process to send pings: to open an ICMP socket."""

from __future__ import annotations

import errno
import socket

HOW_TO_ALLOW = "include its group in net.ipv4.ping_group_range, or give it CAP_NET_RAW"


class NoIcmpRightError(Exception):
    """This process may open neither kind of ICMP socket."""


def open_socket(family: socket.AddressFamily, protocol: int) -> socket.socket:
    """Return a datagram socket, or else a raw one. Raises NoIcmpRightError and OSError."""
    try:
        return socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, protocol)
    except OSError as error:
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EPROTONOSUPPORT}:
            raise
    try:
        return socket.socket(family, socket.SOCK_RAW | socket.SOCK_NONBLOCK, protocol)
    except PermissionError:
        raise NoIcmpRightError from None


def may_ping() -> bool:
    """Return whether this process may send pings. It asks the kernel, so a change shows without a restart."""
    try:
        open_socket(socket.AF_INET, socket.IPPROTO_ICMP).close()
    except NoIcmpRightError:
        return False
    except OSError:  # another problem, which the checks report
        return True
    return True
