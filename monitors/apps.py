from django.apps import AppConfig


class MonitorsConfig(AppConfig):
    name = "monitors"

    def ready(self) -> None:
        from accounts.services import before_account_deleted, delete_some_rows, on_plan_changed
        from checks.results.partitions import SERIES
        from core.clock import utc_now
        from locations.services import before_location_deleted, on_agent_revoked
        from monitors import handing
        from monitors.heartbeats.log import PINGS
        from monitors.operations import raise_intervals
        from monitors.selectors import counts_by_status
        from monitors.services import delete_all_of, delete_some_of, require_unnamed
        from projects.services import monitor_counts

        SERIES.append(PINGS)
        delete_some_rows.append(delete_some_of)
        before_account_deleted.append(delete_all_of)
        before_location_deleted.append(require_unnamed)
        on_agent_revoked.append(lambda agent: handing.revoke(agent.pk))
        monitor_counts.append(counts_by_status)
        on_plan_changed.append(lambda owners, plan: raise_intervals(owners, plan, now=utc_now()))
