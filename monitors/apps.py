from django.apps import AppConfig


class MonitorsConfig(AppConfig):
    name = "monitors"

    def ready(self) -> None:
        from accounts.services import before_account_deleted
        from monitors.services import delete_all_of

        before_account_deleted.append(delete_all_of)
