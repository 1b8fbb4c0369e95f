"""Debian's Chromium, driven by Playwright. No browser is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

MISSING = "browser tests need Chromium: apt install chromium-headless-shell fonts-dejavu-core, or name one in CHROMIUM"
ARGUMENTS = (
    "--no-sandbox",  # root, as in CI, cannot use the sandbox
    # Neither pages nor Chromium itself can reach other hosts, not even for name lookups.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    # No process that emulates a graphics card.
    "--disable-gpu",
    "--disable-software-rasterizer",
    # Pages are too short-lived for optimized code to pay off.
    "--js-flags=--no-opt",
)


def find_chromium() -> str | None:
    """Return the path of Chromium, or None if it is missing. CHROMIUM overrides it.

    The headless shell is preferred: it is Chromium without its own user interface, and takes a third less CPU.
    """
    return os.environ.get("CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")


@contextmanager
def chromium(executable: str) -> Iterator[Browser]:
    """Run Playwright, which keeps an event loop in this thread until the block ends.

    Django then considers the thread asynchronous, and would refuse database access.
    """
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=executable, args=list(ARGUMENTS))
            try:
                yield browser
            finally:
                browser.close()
    finally:
        if before is None:
            del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
        else:
            os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = before
