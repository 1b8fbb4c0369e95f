from django.urls import path

import core.api.converters  # noqa: F401  (registers <id:…>)
from dashboard.monitors import badges, detail, overview

urlpatterns = [
    path("monitors", overview.overview, name="monitors"),
    path("monitors/live", overview.live, name="monitors_live"),
    path("monitors/actions", overview.act, name="monitors_act"),
    path("monitors/<id:monitor_id>", detail.show, name="monitor"),
    path("monitors/<id:monitor_id>/live", detail.live, name="monitor_live"),
    path("monitors/<id:monitor_id>/check", detail.check, name="monitor_check"),
    path("monitors/<id:monitor_id>/latency", detail.latency, name="monitor_latency"),
    path("monitors/<id:monitor_id>/badges", badges.show, name="monitor_badges"),
    path("monitors/<id:monitor_id>/badges/give", badges.give, name="monitor_badges_give"),
    path("monitors/<id:monitor_id>/badges/take", badges.take, name="monitor_badges_take"),
]
