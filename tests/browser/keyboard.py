"""Using pages by keyboard."""

from __future__ import annotations

from playwright.sync_api import Locator, Page

TABS = 300
"""More tab stops than any page has; the limit is reached only by a page that traps the focus."""

_IS_FOCUSED = "element => element === document.activeElement"
_STOP = """() => {
    const element = document.activeElement;
    const name = element.getAttribute("aria-label") || element.textContent || element.getAttribute("name") || "";
    if (element === document.body) return "the end";
    return element.tagName.toLowerCase() + " " + name.trim().replace(/\\s+/g, " ").slice(0, 40);
}"""
_IS_MARKED = """element => {
    const style = getComputedStyle(element);
    const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
    return outlined || style.boxShadow !== "none";
}"""


class Keyboard:
    """Move the focus by Tab only. A stop without a visible focus indicator fails."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def reach(self, target: Locator, *, back: bool = False) -> None:
        """Press Tab (`back`: Shift+Tab) until `target` has the focus; fail if it never gets it."""
        stops: list[str] = []
        while len(stops) < TABS and stops.count("the end") < 2:
            if target.evaluate(_IS_FOCUSED):
                assert target.evaluate(_IS_MARKED), f"nothing shows that {target} has the focus"
                return
            self._page.keyboard.press("Shift+Tab" if back else "Tab")
            stops.append(self._page.evaluate(_STOP))
        raise AssertionError(f"{target} is not reached by Tab. The stops: {', '.join(stops)}")

    def press(self, target: Locator, key: str = "Enter") -> None:
        """Move to `target` and press a key: Enter for links and buttons, Space for checkboxes."""
        self.reach(target)
        self._page.wait_for_load_state()  # without scripts buttons work as well, but show their result elsewhere
        self._page.keyboard.press(key)

    def fill(self, target: Locator, text: str) -> None:
        """Move to a field and replace its text."""
        self.reach(target)
        self._page.keyboard.press("Control+A")
        self._page.keyboard.type(text)

    def choose(self, target: Locator, option: str) -> None:
        """Move to a `select` and type the beginning of an option."""
        self.reach(target)
        self._page.keyboard.type(option)
