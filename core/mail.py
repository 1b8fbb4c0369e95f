"""Whether mails leave this deployment, and what to do if they do not."""

from __future__ import annotations

from django.conf import settings

NO_SERVER = "No mail server is configured. Set EMAIL_URL (docs/settings.md) and restart Pulsekeeper."


def has_server() -> bool:
    """Return False if mails are only printed, because EMAIL_URL is not set."""
    return not str(settings.EMAIL_BACKEND).endswith("console.EmailBackend")
