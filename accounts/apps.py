from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "accounts"

    def ready(self) -> None:
        from allauth.mfa.models import Authenticator

        from core.crypto import register_sealed

        for member in ("secret", "seed"):
            register_sealed(Authenticator, "data", member=member)
