"""What the documentation site has beyond its files, and what it must not have. `mkdocs.yml` names this file.

The page of the API is made of docs/openapi.json; decisions, and pages that `nav` does not name, are put where they
belong. At the end every page is looked through: one that asks another host for a script, a style, a picture or a font
is a warning, and warnings fail the build.
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

DECISIONS = "adr"
API_PAGE = "use/api-reference.md"
_METHODS = ("get", "post", "put", "patch", "delete")
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?(?:https?:)?//
    |<link\b(?=[^>]*\brel=["']?(?:stylesheet|preconnect|preload|icon|modulepreload))[^>]*\bhref=["']?(?:https?:)?//""",
    re.IGNORECASE | re.VERBOSE,
)
_LOADED_BY_STYLES = re.compile(r"""(?:url\(|@import\s+)["']?(?:https?:)?//""", re.IGNORECASE)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the page of the API, and name every page in the navigation."""
    document = json.loads((Path(config.docs_dir) / "openapi.json").read_text())
    files.append(File.generated(config, API_PAGE, content=api_page(document)))
    if config.nav is not None:
        named = set(_named(config.nav))
        unnamed = sorted(each.src_uri for each in files.documentation_pages() if each.src_uri not in named)
        decisions = [uri for uri in unnamed if uri.startswith(f"{DECISIONS}/")]
        others = [uri for uri in unnamed if uri not in decisions]
        config.nav = [*config.nav, *([{"More": others}] if others else []), {"Decisions": decisions}]
    return files


def _named(nav: Any) -> list[str]:
    """The files of a navigation, whatever it is made of."""
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [uri for each in inner for uri in _named(each)]


def api_page(document: dict[str, Any]) -> str:
    """Every operation by its first word, as tables."""
    groups: dict[str, list[str]] = defaultdict(list)
    for path, operations in document["paths"].items():
        words = path.strip("/").split("/")
        group = words[1] if words[0] == "v1" and len(words) > 1 else words[0]
        for method in _METHODS:
            if operation := operations.get(method):
                groups[group].append(f"| `{method.upper()}` | `{path}` | {operation.get('summary', '')} |")
    tables = [
        f"## {group.replace('-', ' ').capitalize()}\n\n| method | path | what it does |\n|---|---|---|\n"
        + "\n".join(rows)
        for group, rows in sorted(groups.items())
    ]
    start = (
        f"# {document['info']['title']}\n\nEvery Pulsekeeper describes its API itself: `/docs` is a page to read and "
        "to try requests on, `/openapi.json` the OpenAPI document. [openapi.json](../openapi.json) is that of this "
        "version, with all bodies, answers and errors. Requests carry `Authorization: Bearer <token>`; this is what "
        "there is to ask for.\n\n"
    )
    return start + "\n\n".join(tables) + "\n"


def on_post_build(*, config: MkDocsConfig) -> None:
    """Nothing that a reader's browser loads by itself comes from another host."""
    site = Path(config.site_dir)
    for pattern, wanted in (("*.html", _LOADED), ("*.css", _LOADED_BY_STYLES)):
        for path in sorted(site.rglob(pattern)):
            if found := wanted.search(path.read_text()):
                logger.warning("%s loads something from elsewhere: %s…", path.relative_to(site), found[0])
