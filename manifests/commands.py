"""Exit codes and helpers of the commands of this app."""

from __future__ import annotations

from django.core.management.base import CommandError

from accounts.models import User
from core.commands import OurCommand

EXIT_REFUSED, EXIT_CHANGES = 2, 3


class PipelineCommand(OurCommand):
    """A command for pipelines. Invalid arguments exit with EXIT_REFUSED, the exit code of argparse."""

    requires_system_checks = ()  # system checks concern the whole site, not the file


def account_of(email: str) -> User:
    user = User.objects.select_related("plan").filter(email=email.strip().lower()).first()
    if user is None:
        raise CommandError(f"no account {email}", returncode=EXIT_REFUSED)
    return user
