from django.urls import path

from privacy import views

urlpatterns = [path("account/export", views.AccountExport.as_view())]
