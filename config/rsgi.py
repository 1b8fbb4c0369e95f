"""The RSGI application of the web server."""

from __future__ import annotations

import gc
import logging
import os
from importlib import import_module

from django.core.wsgi import get_wsgi_application

from config import reporting

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

logging.captureWarnings(True)  # noqa: FBT003
reporting.begin("web")
_django = get_wsgi_application()
# Imported here, because it imports models.
application = import_module("config.gateway").Gateway(_django)

# Load all code that requests need and exclude it from garbage collection: a full collection delayed requests by 0.1 s.
import_module("config.urls")
gc.collect()
gc.freeze()
