"""URLs of pages that create and edit monitors, projects and tokens."""

from django.urls import path

import core.api.converters  # noqa: F401  (registers <id:…>)
from dashboard import monitor_editing, projects, security_log, tokens

urlpatterns = [
    path("monitors/new", monitor_editing.new, name="monitor_new"),
    path("monitors/<id:monitor_id>/edit", monitor_editing.edit, name="monitor_edit"),
    path("projects", projects.index, name="projects"),
    path("projects/<id:project_id>", projects.show, name="project"),
    path("projects/<id:project_id>/log", security_log.of_project, name="project_log"),
    path("projects/<id:project_id>/rename", projects.rename, name="project_rename"),
    path("projects/<id:project_id>/delete", projects.delete, name="project_delete"),
    path("projects/<id:project_id>/members", projects.add_member, name="project_members"),
    path(
        "projects/<id:project_id>/members/<id:member_id>",
        projects.change_member,
        name="project_member",
    ),
    path("tokens", tokens.index, name="tokens"),
    path("tokens/new", tokens.new, name="token_new"),
    path("tokens/<id:token_id>/revoke", tokens.revoke, name="token_revoke"),
]
