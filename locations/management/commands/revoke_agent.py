from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from core.commands import OurCommand
from locations.models import Agent
from locations.services import revoke_agents


class Command(OurCommand):
    help = "Revokes an agent of any location."
    epilog = """\
example:
  manage.py revoke_agent agt_b3x7qk2mwz5dnr4vty6hc3pfea

exit codes:
  0  the agent was revoked
  1  the agent does not exist
  2  usage error
  4  the database cannot be reached
"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", help="the agent's id, agt_…")

    def handle(self, *args: Any, **options: Any) -> None:
        revoked = revoke_agents(Agent.objects.filter(public_id=options["id"])).done
        if not revoked:
            raise CommandError(f"agent {options['id']} does not exist")
        self.stdout.write(f"revoked {revoked[0]}")
