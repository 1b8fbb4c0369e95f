from connectors.views import ConnectorViewSet
from core.api.viewsets import ServiceRouter

router = ServiceRouter()
router.register("connectors", ConnectorViewSet)
urlpatterns = router.urls
