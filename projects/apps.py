from django.apps import AppConfig


class ProjectsConfig(AppConfig):
    name = "projects"

    def ready(self) -> None:
        from accounts.services import before_account_deleted, on_deletion_requested
        from projects.services import leave_all, require_alone

        on_deletion_requested.append(require_alone)
        before_account_deleted.append(leave_all)
