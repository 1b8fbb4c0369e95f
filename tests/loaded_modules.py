"""Included by a worker under test: write the names of all loaded modules to a file when it is ready, and exit."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from celery.signals import worker_ready


@worker_ready.connect
def report(**_: Any) -> None:
    Path(os.environ["LOADED_MODULES"]).write_text("\n".join(sys.modules))
    os._exit(0)
