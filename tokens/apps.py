from django.apps import AppConfig


class TokensConfig(AppConfig):
    name = "tokens"

    def ready(self) -> None:
        from tokens import schema  # noqa: F401  (drf-spectacular finds extensions once they are imported)
