import django_stubs_ext
from django.apps import AppConfig

# Lets ModelAdmin[...] and their like be written where they are used: here, which comes before all of them, and not in
# the settings, which beat reads too without ever loading an app.
django_stubs_ext.monkeypatch()


class CoreConfig(AppConfig):
    name = "core"
