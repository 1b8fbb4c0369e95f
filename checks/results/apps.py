from django.apps import AppConfig


class ChecksConfig(AppConfig):
    name = "checks.results"
    label = "checks"

    def ready(self) -> None:
        from checks.results import system_checks  # noqa: F401  (registers itself)
