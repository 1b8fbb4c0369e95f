from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "alerts"

    def ready(self) -> None:
        from accounts.services import before_account_deleted, on_account_created
        from alerts.defaults import add_own_address
        from alerts.privacy import forget_person

        on_account_created.append(add_own_address)
        before_account_deleted.append(forget_person)
