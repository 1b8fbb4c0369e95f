from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "alerts"

    def ready(self) -> None:
        from accounts import services as accounts
        from alerts import confirmation, services
        from projects.members import on_member_gone

        accounts.on_account_created.append(services.add_own_address)
        accounts.before_account_deleted += [services.forget_person, confirmation.end_with_account]
        accounts.on_account_deactivated.append(confirmation.end_with_account)
        accounts.on_address_changed.append(confirmation.follow_address)
        on_member_gone.append(confirmation.end_with_membership)
