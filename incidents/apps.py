from django.apps import AppConfig


class IncidentsConfig(AppConfig):
    name = "incidents"

    def ready(self) -> None:
        from accounts.services import before_account_deleted
        from incidents.services import forget_person

        before_account_deleted.append(forget_person)
