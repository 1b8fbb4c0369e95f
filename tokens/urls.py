from core.api.viewsets import ServiceRouter
from tokens.views import AccountViewSet, SessionViewSet, TokenViewSet

router = ServiceRouter()
router.register("sessions", SessionViewSet)
router.register("account", AccountViewSet)
router.register("tokens", TokenViewSet)
urlpatterns = router.urls
