from django.urls import path

from tokens import views

urlpatterns = [
    path("sessions", views.SessionList.as_view()),
    path("sessions/current", views.CurrentSession.as_view()),
    path("tokens", views.TokenList.as_view()),
    path("tokens/<str:token_id>", views.TokenDetail.as_view()),
]
