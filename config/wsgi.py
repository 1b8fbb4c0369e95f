"""What the web server runs."""

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
# Pings lead to models, which can be imported from here on.
application = import_module("config.pings").pings_before(_django)

# Whatever every request needs is loaded now, and left out of garbage collection from here on: going through all of it
# took a tenth of a second, at a moment that fell into some request or other.
import_module("config.urls")
gc.collect()
gc.freeze()
