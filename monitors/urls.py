from django.urls import path

from monitors import views

urlpatterns = [
    path("monitors", views.MonitorList.as_view()),
    path("monitors/test", views.MonitorTest.as_view()),
    path("monitors/<str:monitor_id>", views.MonitorDetail.as_view()),
]
