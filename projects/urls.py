from core.api.viewsets import ServiceRouter
from projects.views import AccountLogViewSet, MemberViewSet, ProjectLogViewSet, ProjectViewSet

router = ServiceRouter()
router.register("account/audit-log", AccountLogViewSet)
router.register("projects", ProjectViewSet)
router.register("projects/<id:project_id>/audit-log", ProjectLogViewSet)
router.register("projects/<id:project_id>/members", MemberViewSet)
urlpatterns = router.urls
