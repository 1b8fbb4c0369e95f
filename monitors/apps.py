from django.apps import AppConfig


class MonitorsConfig(AppConfig):
    name = "monitors"

    def ready(self) -> None:
        from accounts.services import before_account_deleted, on_plan_changed
        from monitors.operations import raise_intervals
        from monitors.services import delete_all_of

        before_account_deleted.append(delete_all_of)
        on_plan_changed.append(raise_intervals)
