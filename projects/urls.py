from django.urls import path

from projects import views

urlpatterns = [
    path("projects", views.ProjectList.as_view()),
    path("projects/<str:project_id>", views.ProjectDetail.as_view()),
]
