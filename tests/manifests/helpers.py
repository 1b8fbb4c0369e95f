"""Apply and export files, as the commands do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from textwrap import dedent

import pytest

from accounts.models import User
from core.clock import utc_now
from manifests.applying import apply
from manifests.exporting import export
from manifests.parsing import Manifest
from projects.access import Caller
from pulsekeeper.manifest.changes import Report
from pulsekeeper.manifest.problems import InvalidManifest
from pulsekeeper.manifest.yaml_reader import read
from pulsekeeper.manifest.yaml_writer import write


def apply_text(
    user: User,
    text: str,
    *,
    prune: bool = False,
    dry_run: bool = False,
    environment: Mapping[str, str] | None = None,
    now: datetime | None = None,
) -> Report:
    manifest = Manifest(read(dedent(text).encode()), environment or {})
    return apply(manifest, Caller(user), prune=prune, dry_run=dry_run, now=now or utc_now())


def refusal(user: User, text: str, *, environment: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(InvalidManifest) as refused:
        apply_text(user, text, environment=environment)
    return [problem.format("f.yaml").removeprefix("f.yaml:") for problem in refused.value.problems]


def exported(user: User, *, project_id: str | None = None, with_ids: bool = False) -> str:
    return write(export(Caller(user), project_id=project_id, with_ids=with_ids, now=utc_now()))


def told(report: Report) -> list[str]:
    return [line for change in report.changes for line in change.lines()]
