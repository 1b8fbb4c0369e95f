from django.apps import AppConfig


class ChecksConfig(AppConfig):
    name = "checks"

    def ready(self) -> None:
        from checks import system_checks  # noqa: F401  (registers itself)
