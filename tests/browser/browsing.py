"""Pages of the application, opened and watched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from playwright.sync_api import Browser, Page

from tests.browser.watching import Watch, without

if TYPE_CHECKING:  # it imports models
    from tests.browser.application import Person

PATIENCE_MS = 20_000
"""Timeout of every wait, on a machine that is busy with other tests."""

_UNHURRIED = """
const sheet = new CSSStyleSheet();
sheet.replaceSync("* { pointer-events: none !important }");
document.adoptedStyleSheets.push(sheet);
addEventListener("load", () => setTimeout(() => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter(other => other !== sheet);
}));
"""
"""Wait for scripts before each click. Without them buttons work as well, but show their result elsewhere."""


class Browse:
    """Open pages, each in a separate browser context."""

    def __init__(self, address: str, browser: Browser) -> None:
        self._address, self._browser = address, browser
        self._watches: list[Watch] = []
        self._allowed: list[str] = []
        self.pages: list[Page] = []

    def __call__(self, person: Person | None = None, **options: Any) -> Page:
        """Return a blank page, signed in as `person` if passed. `options` are passed to the browser context."""
        options = {"reduced_motion": "reduce", "timezone_id": "Europe/Berlin", "locale": "en-GB"} | options
        context = self._browser.new_context(base_url=self._address, **options)
        context.set_default_timeout(PATIENCE_MS)
        if options.get("java_script_enabled", True):
            context.add_init_script(_UNHURRIED)
        self._watches.append(Watch(context, address=self._address))
        if person is not None:
            person.sign_in(context)
        self.pages.append(context.new_page())
        return self.pages[-1]

    def allow(self, text: str) -> None:
        """Expect at least one fault that contains this text, like "status of 404"."""
        self._allowed.append(text)

    def faults(self) -> list[str]:
        """Return the faults of all pages since the last call, and forget what was allowed."""
        faults = without([fault for watch in self._watches for fault in watch.faults], self._allowed)
        for watch in self._watches:
            watch.faults.clear()
        self._allowed.clear()
        return faults

    def close(self) -> list[str]:
        """Close all pages and return their faults."""
        faults = self.faults()
        for watch in self._watches:
            watch.close()
        return faults
