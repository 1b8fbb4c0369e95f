from django.apps import AppConfig


class TokensConfig(AppConfig):
    name = "tokens"

    def ready(self) -> None:
        from accounts.services import on_password_changed
        from tokens.services import follow_password

        on_password_changed.append(follow_password)
