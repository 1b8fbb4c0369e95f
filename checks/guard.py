"""The egress guard as this deployment is set up."""

from __future__ import annotations

from django.conf import settings

from core.egress import EgressGuard


def guard() -> EgressGuard:
    return EgressGuard(allowed=tuple(settings.ALLOWED_PRIVATE_NETWORKS))
