from django.apps import AppConfig


class EntranceConfig(AppConfig):
    name = "entrance"

    def ready(self) -> None:
        from accounts.services import before_account_deleted
        from entrance.browsers import end_browsers

        before_account_deleted.append(end_browsers)
