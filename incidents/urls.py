from django.urls import path

import core.api.converters  # noqa: F401  (registers <id:…>)
from incidents import views, window_views

urlpatterns = [
    path("incidents", views.IncidentList.as_view()),
    path("incidents/<id:incident_id>", views.IncidentDetail.as_view()),
    path("incidents/<id:incident_id>/acknowledge", views.IncidentAcknowledge.as_view()),
    path("incidents/<id:incident_id>/comments", views.IncidentComments.as_view()),
    path("incidents/<id:incident_id>/resolve", views.IncidentResolve.as_view()),
    path("maintenance-windows", window_views.WindowList.as_view()),
    path("maintenance-windows/<id:window_id>", window_views.WindowDetail.as_view()),
]
