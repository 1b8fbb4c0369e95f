from core.api.viewsets import ServiceRouter
from incidents.views import BacktestViewSet, IncidentViewSet, WindowViewSet

router = ServiceRouter()
router.register("incidents", IncidentViewSet)
router.register("maintenance-windows", WindowViewSet)
router.register("monitors/<id:monitor_id>/backtest", BacktestViewSet)
urlpatterns = router.urls
