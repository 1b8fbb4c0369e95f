from django.urls import path

import core.api.converters  # noqa: F401  (registers <id:…>)
from dashboard import home, incidents

urlpatterns = [
    path("", home.home),
    path("incidents", incidents.index, name="incidents"),
    path("incidents/declare", incidents.declare, name="incident_declare"),
    path("incidents/<id:incident_id>", incidents.show, name="incident"),
    path("incidents/<id:incident_id>/live", incidents.live, name="incident_live"),
    path("incidents/<id:incident_id>/acknowledge", incidents.acknowledge, name="incident_acknowledge"),
    path("incidents/<id:incident_id>/comments", incidents.comment, name="incident_comment"),
    path("incidents/<id:incident_id>/resolve", incidents.resolve, name="incident_resolve"),
]
