"""The version of Pulsekeeper."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache
def product_version() -> str:
    try:
        return version("pulsekeeper")
    except PackageNotFoundError:  # run from a checkout, as by `make up`
        project = Path(__file__).resolve().parents[1] / "pyproject.toml"
        return str(tomllib.loads(project.read_text())["project"]["version"])
