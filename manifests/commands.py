"""What the commands of this app share: exit codes, and how they end."""

from __future__ import annotations

from django.core.management.base import CommandError

from accounts.models import User
from core.commands import OurCommand

EXIT_REFUSED, EXIT_CHANGES = 2, 3


class PipelineCommand(OurCommand):
    """Wrong use ends with EXIT_REFUSED, which is argparse's own code."""

    requires_system_checks = ()  # of the whole site, which a file is not about


def account_of(email: str) -> User:
    user = User.objects.select_related("plan").filter(email=email.strip().lower()).first()
    if user is None:
        raise CommandError(f"there is no account {email}", returncode=EXIT_REFUSED)
    return user
