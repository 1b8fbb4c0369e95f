from alerts.views import ChannelViewSet, DeliveryViewSet
from core.api.viewsets import ServiceRouter

router = ServiceRouter()
router.register("alert-channels", ChannelViewSet)
router.register("alert-channels/<id:channel_id>/deliveries", DeliveryViewSet)
urlpatterns = router.urls
