from core.api.viewsets import ServiceRouter
from statuspages.views import BadgeViewSet, LogoViewSet, NoteViewSet, StatusPageViewSet, SubscriberViewSet

router = ServiceRouter()
router.register("status-pages", StatusPageViewSet)
router.register("status-pages/<id:page_id>/logo", LogoViewSet)
router.register("status-pages/<id:page_id>/notes", NoteViewSet)
router.register("status-pages/<id:page_id>/subscribers", SubscriberViewSet)
router.register("monitors/<id:monitor_id>/badge", BadgeViewSet)
urlpatterns = router.urls
