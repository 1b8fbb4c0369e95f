from django.urls import path

from dashboard import home

urlpatterns = [
    path("", home.home),
]
