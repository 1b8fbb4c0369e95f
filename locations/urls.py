from core.api.viewsets import ServiceRouter
from locations.views import AgentViewSet, JoinViewSet, LocationViewSet

router = ServiceRouter()
router.register("locations", LocationViewSet)
router.register("locations/<id:location_id>/agents", AgentViewSet)
router.register("agent", JoinViewSet)
urlpatterns = router.urls
