from django.urls import path

from core.api.viewsets import ServiceRouter
from monitors.heartbeats.pings import PingViewSet
from monitors.history_views import CheckViewSet, UptimeViewSet
from monitors.views import MonitorViewSet

router = ServiceRouter()
router.register("monitors", MonitorViewSet)
router.register("monitors/<id:monitor_id>/checks", CheckViewSet)
router.register("monitors/<id:monitor_id>/uptime", UptimeViewSet)
urlpatterns = [
    *router.urls,
    path("heartbeats/<id:monitor_id>/ping", PingViewSet.as_view({"post": "ping", "get": "ping_by_get"})),
]
