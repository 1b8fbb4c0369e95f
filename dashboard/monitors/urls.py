from django.urls import path

import core.api.converters  # noqa: F401  (registers <id:…>)
from dashboard.monitors import detail, overview

urlpatterns = [
    path("monitors", overview.overview, name="monitors"),
    path("monitors/live", overview.live, name="monitors_live"),
    path("monitors/actions", overview.act, name="monitors_act"),
    path("monitors/<id:monitor_id>", detail.show, name="monitor"),
    path("monitors/<id:monitor_id>/live", detail.live, name="monitor_live"),
    path("monitors/<id:monitor_id>/latency", detail.latency, name="monitor_latency"),
]
