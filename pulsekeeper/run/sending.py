"""One attempt to send a signal, with the proxies and certificate authorities of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from http.client import HTTPException
from ssl import SSLCertVerificationError
from urllib.error import HTTPError, URLError
from urllib.request import Request

from core.version import product_version
from pulsekeeper.client import new_opener, retry_after


@dataclass(frozen=True)
class Sent:
    """What became of an attempt: delivered if `problem` is None. `wait_sec` is the server's Retry-After."""

    problem: str | None = None
    retry: bool = False
    wait_sec: float = 0.0


def send(url: str, body: bytes, *, timeout_sec: float) -> Sent:
    headers = {"User-Agent": f"Pulsekeeper/{product_version()}", "Content-Type": "text/plain"}
    try:
        with new_opener().open(Request(url, data=body, headers=headers), timeout=timeout_sec):  # noqa: S310 (http or https)
            return Sent()
    except HTTPError as error:
        error.close()
        if error.code == 404:
            return Sent("the heartbeat does not exist")
        if error.code // 100 == 3:
            return Sent("the server redirects to another address")
        retry = error.code == 429 or error.code >= 500
        wait_sec = retry_after(error.headers.get("Retry-After"))
        return Sent(f"the server answers with status {error.code}", retry=retry, wait_sec=wait_sec)
    except (OSError, HTTPException) as error:
        cause = error.reason if isinstance(error, URLError) else error
        if isinstance(cause, SSLCertVerificationError):
            return Sent("its certificate is not trusted")
        if isinstance(cause, TimeoutError):
            return Sent("the server does not answer in time", retry=True)
        return Sent("the server cannot be reached", retry=True)
    except ValueError:
        return Sent("the address of the proxy is invalid")
