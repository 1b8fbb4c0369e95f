"""The RSGI application of the web server."""

from __future__ import annotations

import gc
import logging
import os
import sys
import warnings
from importlib import import_module
from multiprocessing import parent_process

from django.core.wsgi import get_wsgi_application

from config import history, reporting
from core.clock import DATABASE
from core.db import learn_time
from core.optional_imports import blocked
from core.parent_death import die_with_parent

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

# Granian starts a worker process that loads this. Without granian it would stay, and keep the port.
if granian := parent_process():
    assert granian.pid is not None
    die_with_parent(granian.pid)
logging.captureWarnings(True)  # noqa: FBT003
try:
    reporting.begin("web")
    DATABASE.follow(learn_time)
    with warnings.catch_warnings(action="ignore"), blocked("charset_normalizer"), blocked("chardet"):
        # 3 MiB to guess the encoding of a text, which takes long for some. requests warns that it has neither.
        import requests  # noqa: F401
    with blocked("markdown"), blocked("pygments"):
        # 2 MiB for pages about the API that Pulsekeeper does not have.
        import rest_framework.compat  # noqa: F401
    _django = get_wsgi_application()
    # Load all code that requests need and exclude it from garbage collection: a full collection delayed requests by
    # 0.1 s.
    import_module("config.urls")
    import_module("config.openapi").prepare()
    history.require_known_history()
    # Imported here, because it imports models.
    application = import_module("config.gateway").Gateway(_django)
except Exception:  # noqa: BLE001 - multiprocessing would print it, also with LOG_FORMAT=json
    sys.excepthook(*sys.exc_info())
    raise SystemExit(1) from None
gc.collect()
gc.freeze()
