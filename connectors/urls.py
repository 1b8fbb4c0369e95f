from django.urls import path

import core.api.converters  # noqa: F401  (registers <id:…>)
from connectors import views

urlpatterns = [
    path("connectors", views.ConnectorList.as_view()),
    path("connectors/<id:provider>", views.ConnectorDetail.as_view()),
    path("connectors/<id:provider>/oauth/start", views.ConnectorStart.as_view()),
    path("connectors/<id:provider>/projects", views.ConnectorProjects.as_view()),
    path("connectors/<id:provider>/import", views.ConnectorImport.as_view()),
]
