from django.urls import path

import core.api.converters  # noqa: F401  (registers <id:…>)
from monitors import history_views, views
from monitors.heartbeats import pings

urlpatterns = [
    path("monitors", views.MonitorList.as_view()),
    path("monitors/test", views.MonitorTest.as_view()),
    path("monitors/<id:monitor_id>", views.MonitorDetail.as_view()),
    path("monitors/<id:monitor_id>/checks", history_views.MonitorChecks.as_view()),
    path("monitors/<id:monitor_id>/checks/<id:check_id>", history_views.MonitorCheck.as_view()),
    path("monitors/<id:monitor_id>/uptime", history_views.MonitorUptime.as_view()),
    path("monitors/<id:monitor_id>/mute", views.MonitorMute.as_view()),
    path("heartbeats/<id:monitor_id>/ping", pings.HeartbeatPing.as_view()),
]
