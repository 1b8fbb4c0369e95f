from django.apps import AppConfig


class OnCallConfig(AppConfig):
    name = "oncall"
    verbose_name = "on call"
