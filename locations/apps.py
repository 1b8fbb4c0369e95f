from __future__ import annotations

from django.apps import AppConfig


class LocationsConfig(AppConfig):
    name = "locations"
