"""Pages that make and change what somebody has: monitors, projects, tokens."""

from django.urls import path

import core.api.converters  # noqa: F401  (registers <id:…>)
from dashboard import monitor_editing

urlpatterns = [
    path("monitors/new", monitor_editing.new, name="monitor_new"),
    path("monitors/<id:monitor_id>/edit", monitor_editing.edit, name="monitor_edit"),
]
