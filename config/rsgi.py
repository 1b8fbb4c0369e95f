"""The application that the web server runs."""

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
# It imports models, which is possible from here on.
application = import_module("config.gateway").Gateway(_django)

# Load what every request needs, and exclude it from garbage collection: a full collection took a tenth of a second in
# the middle of some request.
import_module("config.urls")
gc.collect()
gc.freeze()
