"""Copy uPlot and the Lucide icons of ICONS, pinned by frontend/package-lock.json, into static/vendor.

`make vendor` runs it after `npm ci`. The result is committed, so that Pulsekeeper needs no npm.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
MODULES = HERE / "node_modules"
VENDOR = HERE.parent / "static" / "vendor"
SVG = "http://www.w3.org/2000/svg"

# Names that templates may use in {% icon %}.
ICONS = (
    "activity",
    "arrow-left",
    "arrow-left-right",
    "bell",
    "bell-off",
    "calendar",
    "check",
    "chevron-down",
    "chevron-left",
    "chevron-right",
    "circle-alert",
    "circle-check",
    "circle-help",
    "circle-pause",
    "clock",
    "copy",
    "download",
    "ellipsis",
    "external-link",
    "folder",
    "globe",
    "heart-pulse",
    "info",
    "key",
    "link",
    "list",
    "lock",
    "log-out",
    "mail",
    "menu",
    "message-square",
    "network",
    "pause",
    "pencil",
    "phone-call",
    "play",
    "plug",
    "plus",
    "refresh-cw",
    "rss",
    "search",
    "send",
    "shield",
    "sun-moon",
    "tag",
    "timer",
    "trash-2",
    "triangle-alert",
    "undo-2",
    "upload",
    "user",
    "user-plus",
    "users",
    "wrench",
    "x",
)


def copy_uplot() -> None:
    target = VENDOR / "uplot"
    target.mkdir(parents=True, exist_ok=True)
    for name in ("dist/uPlot.iife.min.js", "dist/uPlot.min.css", "LICENSE"):
        shutil.copyfile(MODULES / "uplot" / name, target / Path(name).name)


def draw_icons() -> None:
    """Write one SVG sprite with a <symbol> per icon. Icons use the current colour."""
    ElementTree.register_namespace("", SVG)
    sprite = ElementTree.Element(f"{{{SVG}}}svg")
    for name in ICONS:
        icon = ElementTree.parse(MODULES / "lucide-static" / "icons" / f"{name}.svg").getroot()  # noqa: S314
        symbol = ElementTree.SubElement(sprite, f"{{{SVG}}}symbol", id=name, viewBox=icon.get("viewBox", "0 0 24 24"))
        for shape in icon:
            shape.tail = None
            symbol.append(shape)
        symbol.tail = "\n"
    target = VENDOR / "lucide"
    target.mkdir(parents=True, exist_ok=True)
    (target / "icons.svg").write_text(ElementTree.tostring(sprite, encoding="unicode") + "\n")
    shutil.copyfile(MODULES / "lucide-static" / "LICENSE", target / "LICENSE")


if __name__ == "__main__":
    copy_uplot()
    draw_icons()
