from django.urls import path

from core.api.viewsets import ServiceRouter
from monitors import history_views, views
from monitors.heartbeats import pings

router = ServiceRouter()
router.register("monitors/<id:monitor_id>/checks", history_views.CheckViewSet)
router.register("monitors/<id:monitor_id>/uptime", history_views.UptimeViewSet)

urlpatterns = [
    *router.urls,
    path("monitors", views.MonitorList.as_view()),
    path("monitors/test", views.MonitorTest.as_view()),
    path("monitors/<id:monitor_id>", views.MonitorDetail.as_view()),
    path("monitors/<id:monitor_id>/mute", views.MonitorMute.as_view()),
    path("heartbeats/<id:monitor_id>/ping", pings.HeartbeatPing.as_view()),
]
