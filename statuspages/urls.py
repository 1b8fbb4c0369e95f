from django.urls import path

import core.api.converters  # noqa: F401  (registers <id:…>)
from statuspages import views

urlpatterns = [
    path("status-pages", views.StatusPageList.as_view()),
    path("status-pages/<id:page_id>", views.StatusPageDetail.as_view()),
    path("status-pages/<id:page_id>/logo", views.StatusPageLogo.as_view()),
    path("status-pages/<id:page_id>/notes", views.NoteList.as_view()),
    path("status-pages/<id:page_id>/notes/<id:note_id>", views.NoteDetail.as_view()),
    path("status-pages/<id:page_id>/notes/<id:note_id>/updates", views.NoteUpdates.as_view()),
    path("status-pages/<id:page_id>/subscribers", views.SubscriberList.as_view()),
    path("status-pages/<id:page_id>/subscribers/<id:subscriber_id>", views.SubscriberDetail.as_view()),
    path("monitors/<id:monitor_id>/badge", views.MonitorBadge.as_view()),
]
