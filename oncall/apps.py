from django.apps import AppConfig


class OnCallConfig(AppConfig):
    name = "oncall"
    verbose_name = "on call"

    def ready(self) -> None:
        from oncall.services import lock_policies
        from projects.services import before_projects_deleted

        before_projects_deleted.append(lock_policies)
