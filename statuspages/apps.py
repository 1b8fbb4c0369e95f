from django.apps import AppConfig


class StatusPagesConfig(AppConfig):
    name = "statuspages"
    verbose_name = "status pages"

    def ready(self) -> None:
        from projects.placement import links
        from statuspages.models import PageMonitor

        links.append(PageMonitor)
