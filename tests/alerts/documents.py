"""The part of docs/use/alerts.md between its markers, with the services: `python -m tests.generated` writes it."""

from __future__ import annotations

from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "use" / "alerts.md"
START, END = "<!-- services -->", "<!-- /services -->"


def with_services(text: str) -> str:
    """Return the document's text with the current list of services. Raise ValueError if a marker is missing."""
    from alerts.transports.apprise import SERVICES
    from alerts.transports.apprise_plugins import form_of

    before, rest = text[: text.index(START)], text[text.index(END) :]
    rows = []
    for service in sorted(SERVICES, key=lambda service: service.name.lower()):
        form, page = form_of(service, service.schemes[0])
        also = "".join(f", `{other}://`" for other in service.schemes[1:])
        rows.append(f"| [{service.name}]({page}) | `{form}`{also} |")
    table = "\n".join(["| service | URL |", "|---|---|", *rows])
    return f"{before}{START}\n{table}\n{rest}"
