from django.urls import path

import core.api.converters  # noqa: F401  (registers <id:…>)
from projects import log_views, views

urlpatterns = [
    path("account/audit-log", log_views.AccountLog.as_view()),
    path("projects", views.ProjectList.as_view()),
    path("projects/<id:project_id>", views.ProjectDetail.as_view()),
    path("projects/<id:project_id>/audit-log", log_views.ProjectLog.as_view()),
    path("projects/<id:project_id>/members", views.MemberList.as_view()),
    path("projects/<id:project_id>/members/<id:member_id>", views.MemberDetail.as_view()),
]
