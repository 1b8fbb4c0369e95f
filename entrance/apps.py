from django.apps import AppConfig


class EntranceConfig(AppConfig):
    name = "entrance"
