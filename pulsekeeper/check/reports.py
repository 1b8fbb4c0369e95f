"""Findings as text, as a table and as JSON. User input is shown without control characters or markup."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from checks.evidence import shown_address
from core.text import counted, printable
from pulsekeeper.check.findings import Exit, Finding, FindingStatus, counts

if TYPE_CHECKING:
    from rich.table import Table

# Most severe first.
_STYLES = {
    FindingStatus.DOWN: "bold red",
    FindingStatus.NOT_CHECKED: "bold magenta",
    FindingStatus.SLOW: "yellow",
    FindingStatus.UP: "green",
    FindingStatus.WAITING: "dim",
    FindingStatus.PAUSED: "dim",
}


def address(finding: Finding) -> str:
    """Return the URL without the values of its query, which may be secrets."""
    return shown_address(finding.target.url)


def as_text(finding: Finding) -> str:
    """Return a line for a log, and the evidence if down: `DOWN Shop https://shop.example/: Answered with status 503 …`.

    Evidence lines have a prefix, so that none is a command to CI.
    """
    name, where = printable(finding.target.name), address(finding)
    took = f" ({finding.latency_ms} ms)" if finding.latency_ms is not None else ""
    text = f": {printable(finding.detail)}" if finding.detail else ""
    line = f"{finding.status.upper():11} {name}{f' {where}' if where else ''}{took}{text}"
    seen = evidence_lines(finding.evidence) if finding.status is FindingStatus.DOWN else ()
    return "\n".join([line, *(f"  | {printable(fact)}" for fact in seen)])


def summary(findings: Sequence[Finding]) -> str:
    """Return a summary: `3 monitors: 1 up, 2 down`."""
    text = ", ".join(f"{count} {status}" for status, count in counts(findings).items())
    return f"{counted(len(findings), 'monitor')}: {text}"


def evidence_lines(evidence: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the evidence of a failed check, one fact per line. Secrets were masked when it was recorded."""
    seen = evidence or {}
    tls = " by ".join(filter(None, [seen.get("tls_version"), seen.get("tls_issuer")]))
    facts = [
        ("address", seen.get("address")),
        ("TLS", tls),
        *((fact["name"], fact["value"]) for fact in seen.get("facts") or ()),
        *((str(redirect["status"]), f"to {redirect['url']}") for redirect in seen.get("redirects") or ()),
        ("answer", seen.get("status_line")),
        *((header["name"], header["value"]) for header in seen.get("headers") or ()),
        ("body", seen.get("body")),
    ]
    for name, value in facts:
        if value:
            yield from f"{name}: {value}".splitlines()


@contextmanager
def progress(total: int, *, shown: bool) -> Iterator[Callable[[], object]]:
    """Show a progress bar on the terminal. Yield a function that advances it by one."""
    if not shown or not total:
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("Checking"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)


def table(findings: Sequence[Finding]) -> Table:
    """Return a table for a terminal, most severe first."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(header_style="bold")
    for title in ("Status", "Monitor", "Type"):
        grid.add_column(title, overflow="fold")
    grid.add_column("Time", justify="right", no_wrap=True)
    grid.add_column("Detail", overflow="fold")
    for finding in sorted(findings, key=lambda each: list(_STYLES).index(each.status)):
        took = "" if finding.latency_ms is None else f"{finding.latency_ms} ms"
        grid.add_row(
            Text(finding.status.upper(), style=_STYLES[finding.status]),
            Text(f"{printable(finding.target.name)}\n{address(finding)}".strip()),
            Text(finding.target.type),
            Text(took),
            Text(printable(finding.detail or "")),
        )
    return grid


def as_json(findings: Sequence[Finding], *, code: Exit) -> str:
    """Return one object: the exit code, the counts, and each monitor with its result."""
    monitors = [
        {
            "id": finding.target.shown_id,
            "name": finding.target.name,
            "type": finding.target.type,
            "url": address(finding),
            "project_id": finding.target.project_id,
            "status": finding.status.value,
            "checked": not finding.known and finding.checked_at is not None,
            "latency_ms": finding.latency_ms,
            "http_status": finding.http_status,
            "reason_code": finding.reason_code,
            "detail": finding.detail,
            "checked_at": finding.checked_at,
            "evidence": finding.evidence,
        }
        for finding in findings
    ]
    report = {"exit_code": int(code), "counts": counts(findings), "monitors": monitors}
    return json.dumps(report, ensure_ascii=False, indent=2)
