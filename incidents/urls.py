from core.api.viewsets import ServiceRouter
from incidents.views import IncidentViewSet, WindowViewSet

router = ServiceRouter()
router.register("incidents", IncidentViewSet)
router.register("maintenance-windows", WindowViewSet)
urlpatterns = router.urls
