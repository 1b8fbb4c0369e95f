from django.apps import AppConfig


class DeclaredConfig(AppConfig):
    name = "declared"
