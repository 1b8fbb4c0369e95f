"""Hooks of `mkdocs build` (`mkdocs.yml` names this file).

They generate the API reference from docs/openapi.json, add ADRs and other pages that `nav` does not list, and warn
about pages that load a script, style, image or font from another host. Warnings fail the build.
"""

from __future__ import annotations

import json
import logging
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

logger = logging.getLogger("mkdocs.hooks.pulsekeeper")

ADRS = "adr"
API_PAGE = "use/api-reference.md"
_METHODS = ("get", "post", "put", "patch", "delete")
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?(?:https?:)?//
    |<link\b(?=[^>]*\brel=["']?(?:stylesheet|preconnect|preload|icon|modulepreload))[^>]*\bhref=["']?(?:https?:)?//""",
    re.IGNORECASE | re.VERBOSE,
)
_LOADED_BY_STYLES = re.compile(r"""(?:url\(|@import\s+)["']?(?:https?:)?//""", re.IGNORECASE)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the API reference, and list every page in the navigation."""
    document = json.loads((Path(config.docs_dir) / "openapi.json").read_text())
    files.append(File.generated(config, API_PAGE, content=api_page(document)))
    if config.nav is not None:
        listed = set(_pages(config.nav))
        unlisted = sorted(page.src_uri for page in files.documentation_pages() if page.src_uri not in listed)
        adrs = [uri for uri in unlisted if uri.startswith(f"{ADRS}/")]
        others = [uri for uri in unlisted if uri not in adrs]
        config.nav = [*config.nav, *([{"More": others}] if others else []), {"Decisions": adrs}]
    return files


def _pages(nav: Any) -> list[str]:
    """Return the paths of all pages in a navigation."""
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [uri for each in inner for uri in _pages(each)]


def api_page(document: dict[str, Any]) -> str:
    """Return a page with a table of operations for each resource."""
    groups: dict[str, list[str]] = defaultdict(list)
    for path, operations in document["paths"].items():
        words = path.strip("/").split("/")
        group = words[1] if words[0] == "v1" and len(words) > 1 else words[0]
        for method in _METHODS:
            if operation := operations.get(method):
                groups[group].append(f"| `{method.upper()}` | `{path}` | {operation.get('summary', '')} |")
    tables = [
        f"## {group.replace('-', ' ').capitalize()}\n\n| method | path | summary |\n|---|---|---|\n" + "\n".join(rows)
        for group, rows in sorted(groups.items())
    ]
    start = (
        "# API reference\n\nAll endpoints of this version, generated from [openapi.json](../openapi.json), which also "
        "describes bodies, responses and errors. A running server has a page to try requests at `/docs`. "
        "[API conventions](api.md) explains authentication, lists, errors and limits.\n\n"
    )
    return start + "\n\n".join(tables) + "\n"


def on_post_build(*, config: MkDocsConfig) -> None:
    """Warn about pages that load anything from another host."""
    site = Path(config.site_dir)
    for pattern, wanted in (("*.html", _LOADED), ("*.css", _LOADED_BY_STYLES)):
        for path in sorted(site.rglob(pattern)):
            if found := wanted.search(path.read_text()):
                logger.warning("%s loads something from another host: %s…", path.relative_to(site), found[0])
