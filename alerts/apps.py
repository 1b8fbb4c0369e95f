from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "alerts"

    def ready(self) -> None:
        from accounts import services as accounts
        from alerts import confirmation, planned, services
        from alerts.models import AlertChannel
        from monitors.scheduling import clock_steps
        from projects.members import on_member_gone
        from projects.placement import links
        from projects.services import before_projects_deleted

        accounts.on_account_created.append(services.add_own_address)
        accounts.delete_some_rows.insert(0, services.delete_some_messages_of)  # before the incidents that they name
        accounts.before_account_deleted += [
            lambda user: services.lock_channels(owner=user),
            services.forget_person,
            confirmation.end_with_account,
        ]
        before_projects_deleted.append(lambda project_ids: services.lock_channels(project__in=project_ids))
        accounts.on_account_deactivated.append(confirmation.end_with_account)
        accounts.on_address_changed.append(confirmation.follow_address)
        links.append(AlertChannel.monitors.through)
        clock_steps.on_set_back.append(planned.set_back)
        on_member_gone.append(lambda project, user: confirmation.end_with_account(user, project=project))
