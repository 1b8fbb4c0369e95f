"""A libcurl multi handle and plain sockets behind one epoll.

libcurl's socket interface, because `CurlMulti.select` cannot watch a descriptor above 1023, which a busy worker
reaches. epoll limits probes to Linux, where workers run.
"""

from __future__ import annotations

import logging
import os
import select
import time
import weakref
from typing import Any

import pycurl

logger = logging.getLogger(__name__)

_EVENTS = {
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
_READABLE = select.EPOLLIN | select.EPOLLHUP

Finished = tuple[pycurl.Curl, int, str]


class Resources(dict[type, Any]):
    """Objects that probes of one thread share or reuse between batches: `resources[Kind]` creates a Kind() once."""

    def __missing__(self, kind: type) -> Any:
        self[kind] = made = kind()
        return made


class Reactor:
    """For one thread at a time. Only `wake` may be called from another."""

    def __init__(self) -> None:
        self.resources = Resources()
        self._poll = select.epoll()
        self._watched: set[int] = set()  # libcurl's sockets
        self._plain: set[int] = set()
        self._timer: float | None = None  # when libcurl wants to be called, in monotonic seconds
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._is_woken = False
        weakref.finalize(self, os.close, self._wakeup)
        self._poll.register(self._wakeup, select.EPOLLIN)
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)

    def add(self, easy: pycurl.Curl) -> None:
        """Raises pycurl.error where libcurl refuses the handle."""
        self._multi.add_handle(easy)

    def remove(self, easy: pycurl.Curl) -> None:
        self._multi.remove_handle(easy)

    def watch(self, fd: int, *, write: bool) -> None:
        """Report the descriptor in `turn` while it is readable (or writable). Watching it again changes which."""
        change = self._poll.modify if fd in self._plain else self._poll.register
        change(fd, select.EPOLLOUT if write else select.EPOLLIN)
        self._plain.add(fd)

    def unwatch(self, fd: int) -> None:
        self._plain.discard(fd)
        self._poll.unregister(fd)

    def wake(self) -> None:
        """End the current wait, or the next."""
        if not self._is_woken:  # a batch of checks needs one system call
            self._is_woken = True
            os.eventfd_write(self._wakeup, 1)

    def turn(self, timeout: float) -> tuple[list[Finished], list[int]]:
        """Wait at most `timeout` seconds for events. Return the transfers that ended and the plain sockets ready."""
        now = time.monotonic()
        if self._timer is not None:
            timeout = min(timeout, max(0.0, self._timer - now))
        ready = self._poll.poll(timeout)
        if self._timer is not None and self._timer <= time.monotonic():
            self._timer = None
            self._act(pycurl.SOCKET_TIMEOUT, 0)
        plain: list[int] = []
        for fd, events in ready:
            if fd == self._wakeup:
                os.eventfd_read(fd)
                self._is_woken = False  # before the caller looks at what came
                continue
            if fd in self._plain:
                plain.append(fd)
                continue
            action = pycurl.CSELECT_IN if events & _READABLE else 0
            if events & select.EPOLLOUT:
                action |= pycurl.CSELECT_OUT
            if events & select.EPOLLERR:
                action |= pycurl.CSELECT_ERR
            self._act(fd, action)
        return self._collect(), plain

    def _act(self, fd: int, action: int) -> None:
        try:
            self._multi.socket_action(fd, action)
        except pycurl.error:
            # libcurl has closed the socket in the meantime. If it is worse, the transfer ends at its deadline.
            logger.debug("libcurl refused an event on a socket", exc_info=True)

    def _collect(self) -> list[Finished]:
        finished: list[Finished] = []
        while True:
            queued, succeeded, failed = self._multi.info_read()
            finished += [(easy, pycurl.E_OK, "") for easy in succeeded]
            finished += failed
            if not queued:
                return finished

    def _watch(self, what: int, fd: int, _multi: pycurl.CurlMulti, _data: object) -> None:
        # Called by libcurl, so it must not raise. The kernel removes a closed descriptor by itself and may reuse its
        # number before libcurl reports it, so each change is tried twice.
        try:
            if what == pycurl.POLL_REMOVE:
                self._watched.discard(fd)
                self._poll.unregister(fd)
                return
            known = fd in self._watched
            self._watched.add(fd)
            try:
                (self._poll.modify if known else self._poll.register)(fd, _EVENTS[what])
            except (FileNotFoundError, FileExistsError):
                (self._poll.register if known else self._poll.modify)(fd, _EVENTS[what])
        except OSError:
            logger.debug("a socket could not be watched", exc_info=True)

    def _set_timer(self, timeout_ms: int) -> None:
        self._timer = None if timeout_ms < 0 else time.monotonic() + timeout_ms / 1000
