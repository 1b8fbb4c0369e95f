from django.apps import AppConfig


class AccountsWebConfig(AppConfig):
    name = "accounts.web"
    label = "accounts_web"

    def ready(self) -> None:
        from accounts.services import before_account_deleted
        from accounts.web.web_sessions import end_web_sessions

        before_account_deleted.append(end_web_sessions)
