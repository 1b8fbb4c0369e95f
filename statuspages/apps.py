from django.apps import AppConfig


class StatusPagesConfig(AppConfig):
    name = "statuspages"
    verbose_name = "status pages"
