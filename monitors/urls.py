from django.urls import path

import core.api.converters  # noqa: F401  (registers <id:…>)
from monitors import views

urlpatterns = [
    path("monitors", views.MonitorList.as_view()),
    path("monitors/test", views.MonitorTest.as_view()),
    path("monitors/<id:monitor_id>", views.MonitorDetail.as_view()),
]
