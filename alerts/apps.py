from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "alerts"

    def ready(self) -> None:
        from accounts.services import on_account_created
        from alerts.defaults import add_own_address

        on_account_created.append(add_own_address)
