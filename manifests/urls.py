from core.api.viewsets import ServiceRouter
from manifests.views import ImportViewSet, ManifestViewSet

router = ServiceRouter()
router.register("manifest", ManifestViewSet)
router.register("imports", ImportViewSet)
urlpatterns = router.urls
