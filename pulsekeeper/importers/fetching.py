"""Fetch all pages of monitors from UptimeRobot's API, version 2 or 3."""

from __future__ import annotations

import json
import time
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import Request

from core.cli import UsageError
from pulsekeeper.client import checked_address, new_opener, retry_after
from pulsekeeper.importers.mapped import UnreadableFileError, load_json

MAX_PAGES = 200
MAX_PAGE_BYTES = 20 * 1024 * 1024
TIMEOUT_SEC = 60.0
PATIENCE_SEC = 300.0  # the free plan allows 10 requests a minute
V2_LIMIT, V3_LIMIT = 50, 200


def fetch(address: str, *, key: str) -> str:
    """Return all monitors in the form of one answer. Raises UnreadableFileError if a page cannot be read."""
    try:
        checked_address(address)
    except UsageError:
        raise UnreadableFileError(
            "is not the address of an API, like https://api.uptimerobot.com/v3/monitors"
        ) from None
    is_v2 = urlsplit(address).path.rstrip("/").endswith("getMonitors")
    section = "monitors" if is_v2 else "data"
    deadline = time.monotonic() + PATIENCE_SEC
    found: list[Any] = []
    cursor = None
    for _ in range(MAX_PAGES):
        if is_v2:
            form = {"api_key": key, "format": "json", "limit": V2_LIMIT, "offset": len(found)}
            request = Request(address, data=urlencode(form).encode())  # noqa: S310 (checked above)
        else:
            # Only the cursor of the link counts: the key must not reach another server.
            query = {"limit": V3_LIMIT} | ({} if cursor is None else {"cursor": cursor})
            request = Request(f"{address}?{urlencode(query)}", headers={"Authorization": f"Bearer {key}"})  # noqa: S310
        page = _send(request, deadline)
        if page.get("stat") == "fail":
            raise UnreadableFileError("UptimeRobot refuses the request; is UPTIMEROBOT_API_KEY an API key?")
        if not isinstance(page.get(section), list):
            raise UnreadableFileError(f"an answer has no {section}")
        found += page[section]
        if is_v2:
            pagination = page.get("pagination")
            total = pagination.get("total") if isinstance(pagination, dict) else None
            if not page[section] or not isinstance(total, int) or len(found) >= total:
                break
        else:
            before, cursor = cursor, _cursor_of(page.get("nextLink"))
            if cursor is None:
                break
            if cursor == before:
                raise UnreadableFileError("the API returns the same page again")
    return json.dumps({**page, section: found})


def _cursor_of(link: object) -> str | None:
    try:
        return parse_qs(urlsplit(link).query)["cursor"][0] if isinstance(link, str) else None
    except (KeyError, ValueError):
        return None


def _send(request: Request, deadline: float) -> dict[str, Any]:
    """Return the answer to a request, repeated while the API asks to wait."""
    while True:
        try:
            with new_opener().open(request, timeout=TIMEOUT_SEC) as answer:
                page = load_json(answer.read(MAX_PAGE_BYTES).decode("utf-8", errors="replace"))
        except HTTPError as error:
            error.close()
            wait_sec = max(1.0, retry_after(error.headers.get("Retry-After")))
            if error.code != 429 or time.monotonic() + wait_sec > deadline:
                raise UnreadableFileError(f"the API answers with status {error.code}") from None
            time.sleep(wait_sec)
        except (OSError, HTTPException):
            raise UnreadableFileError("the API cannot be reached") from None
        except ValueError:
            raise UsageError("the address of the proxy in the environment is invalid") from None
        else:
            if not isinstance(page, dict):
                raise UnreadableFileError("an answer is not an object")
            return page
