from django.urls import path

import core.api.converters  # noqa: F401  (registers <id:…>)
from tokens import views

urlpatterns = [
    path("sessions", views.SessionList.as_view()),
    path("sessions/current", views.CurrentSession.as_view()),
    path("sessions/<id:session_id>", views.SessionDetail.as_view()),
    path("account", views.Account.as_view()),
    path("tokens", views.TokenList.as_view()),
    path("tokens/<id:token_id>", views.TokenDetail.as_view()),
]
