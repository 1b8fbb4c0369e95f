"""axe-core, which finds accessibility violations. Its source is part of a package: nothing is downloaded."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

BAD = ("serious", "critical")
# Moving and fading elements are tested in their final state.
_RUN = """([only, without, rules]) => {
    for (let round = 0; round < 10 && document.getAnimations().length; round++)
        for (const each of document.getAnimations())
            try { each.finish() } catch { each.cancel() }
    // Nothing is preloaded: the rules that are on do not read style sheets.
    const options = {resultTypes: ["violations"], preload: false, ...(rules && {runOnly: rules})};
    return axe.run({include: only, exclude: without}, options);
}"""
COLOR_RULES = ("color-contrast", "link-in-text-block")
"""The rules of axe-core about colours: those with the tag cat.color that are enabled."""


@cache
def _source() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text() + "\n;null"


def violations(
    page: Page, *, only: str = "html", without: tuple[str, ...] = (), rules: tuple[str, ...] | None = None
) -> list[str]:
    """Return a text for each serious or critical violation in the current colours: rule, description and elements.

    It runs through the debugger, which bypasses the Content-Security-Policy. `rules`: the rules to run, None for all.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(_source())
    found: dict[str, Any] = page.evaluate(_RUN, [[only], [[selector] for selector in without], rules])
    return [_told(one) for one in found["violations"] if one["impact"] in BAD]


def axe(page: Page, *, only: str = "html", without: tuple[str, ...] = ()) -> None:
    """Fail on any serious or critical violation of this page, in light colours and in dark ones.

    `only` and `without` are CSS selectors, for pages with parts of others. All rules run in dark colours, and in light
    ones only those about colours: the scheme changes nothing else on our pages.
    """
    page.wait_for_load_state()
    found = []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        rules = COLOR_RULES if scheme == "light" else None
        found += [f"{scheme}: {each}" for each in violations(page, only=only, without=without, rules=rules)]
    assert not found, f"axe-core on {page.url}:\n" + "\n".join(found)


def _told(violation: dict[str, Any]) -> str:
    lines = [f"{violation['impact']} {violation['id']}: {violation['help']} ({violation['helpUrl']})"]
    for node in violation["nodes"]:
        lines.append(f"    {' '.join(map(str, node['target']))}: {node['html'][:200]}")
        lines += [f"        {line}" for line in node["failureSummary"].splitlines()]
    return "\n".join(lines)
