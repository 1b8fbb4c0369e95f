from django.apps import AppConfig


class IncidentsConfig(AppConfig):
    name = "incidents"

    def ready(self) -> None:
        from accounts.services import before_account_deleted, delete_some_rows
        from incidents.models import MaintenanceWindow
        from incidents.services import (
            delete_some_of,
            forget_person,
            lock_of_monitors,
            lock_of_projects,
            lock_windows_of,
        )
        from incidents.windows import covering
        from monitors.filters import conditions
        from monitors.services import before_monitors_deleted
        from projects.placement import links
        from projects.services import before_projects_deleted

        delete_some_rows.append(delete_some_of)
        before_account_deleted.insert(0, lock_windows_of)  # before the incidents of its projects and monitors
        before_account_deleted.append(forget_person)
        before_monitors_deleted.append(lock_of_monitors)
        conditions["maintenance"] = covering
        before_projects_deleted.append(lock_of_projects)
        links.append(MaintenanceWindow.monitors.through)
