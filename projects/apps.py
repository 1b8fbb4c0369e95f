from django.apps import AppConfig


class ProjectsConfig(AppConfig):
    name = "projects"

    def ready(self) -> None:
        from accounts.services import before_account_deleted
        from projects.services import leave_all

        before_account_deleted.append(leave_all)
