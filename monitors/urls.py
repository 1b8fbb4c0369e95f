from core.api.viewsets import ServiceRouter
from monitors.exposition import MetricsViewSet
from monitors.heartbeats import views as heartbeats
from monitors.history_views import CheckViewSet, DnsChangeViewSet, PingLogViewSet, UptimeViewSet
from monitors.views import MonitorViewSet, SchedulePreviewViewSet, TagViewSet

router = ServiceRouter()
router.register("monitors", MonitorViewSet)
router.register("monitors/<id:monitor_id>/checks", CheckViewSet)
router.register("monitors/<id:monitor_id>/dns-changes", DnsChangeViewSet)
router.register("monitors/<id:monitor_id>/pings", PingLogViewSet)
router.register("monitors/<id:monitor_id>/uptime", UptimeViewSet)
router.register("metrics", MetricsViewSet)
router.register("schedule-preview", SchedulePreviewViewSet)
router.register("tags", TagViewSet)
urlpatterns = [
    *router.urls,
    *heartbeats.urlpatterns,
]
