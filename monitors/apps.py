from django.apps import AppConfig


class MonitorsConfig(AppConfig):
    name = "monitors"

    def ready(self) -> None:
        from accounts.services import before_account_deleted, on_plan_changed
        from checks.results.partitions import SERIES
        from core.clock import utc_now
        from monitors.heartbeats.log import PINGS
        from monitors.operations import raise_intervals
        from monitors.selectors import counts_by_status
        from monitors.services import delete_all_of
        from projects.services import monitor_counts

        SERIES.append(PINGS)
        before_account_deleted.append(delete_all_of)
        monitor_counts.append(counts_by_status)
        on_plan_changed.append(lambda owners, plan: raise_intervals(owners, plan, now=utc_now()))
