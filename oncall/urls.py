from core.api.viewsets import ServiceRouter
from oncall.incident_views import EscalationViewSet
from oncall.views import ContactViewSet, PolicyViewSet, ScheduleViewSet

router = ServiceRouter()
router.register("on-call-schedules", ScheduleViewSet)
router.register("escalation-policies", PolicyViewSet)
router.register("incidents", EscalationViewSet)
router.register("account/contact", ContactViewSet)
urlpatterns = router.urls
