from django.apps import AppConfig


class OnCallConfig(AppConfig):
    name = "oncall"
    verbose_name = "on call"

    def ready(self) -> None:
        from alerts import outbox, tasks
        from incidents import services as incidents
        from monitors.scheduling import clock_steps
        from oncall import acknowledging, escalating
        from oncall.services import lock_policies
        from projects.services import before_projects_deleted

        before_projects_deleted.append(lock_policies)
        incidents.on_acknowledged.append(escalating.stop)
        outbox.acknowledge_urls.append(acknowledging.make_links)
        tasks.run_escalations.append(escalating.run_due)
        tasks.on_sweep.append(acknowledging.delete_old)
        clock_steps.on_set_back.append(escalating.set_back)
