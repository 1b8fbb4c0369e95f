from django.apps import AppConfig


class SigninConfig(AppConfig):
    name = "signin"

    def ready(self) -> None:
        from accounts.services import before_account_deleted
        from signin.web_sessions import end_web_sessions

        before_account_deleted.append(end_web_sessions)
