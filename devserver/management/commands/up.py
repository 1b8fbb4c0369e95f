"""`manage.py up`: run all of Pulsekeeper on one machine. `make up` calls it.

manage.py has locked the data folder and started the servers by now (devserver/environment.py), as the settings need
their addresses.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, connections
from django.utils import timezone

from accounts.services import create_account
from config.history import find_refusal
from core import private_networks
from core.commands import OurCommand
from core.errors import ValidationFailed
from devserver import readiness
from devserver.environment import address, uses_embedded_servers
from devserver.process_manager import ProcessManager
from devserver.session import server_pids

LOOK_SECONDS = 0.5
PROBERS = ("worker", "interactive")
"""The processes that check and send alerts."""


class Command(OurCommand):
    help = "Apply migrations, create the first account, and run web, workers and beat until Ctrl-C."
    epilog = """\
Environment variables: PORT, DATA_DIR, and ADMIN_EMAIL, ADMIN_PASSWORD and ADMIN_PLAN for the first account.

exit codes:
  0  ended by Ctrl-C or SIGTERM
  1  a process or server failed
  2  usage error
  4  the database cannot be reached
"""

    def handle(self, *_args: Any, **_options: Any) -> None:
        from honcho.environ import parse_procfile

        with connection.wrap_database_errors:
            refusal = find_refusal()
        if refusal:
            raise CommandError(refusal.message)
        call_command("migrate", interactive=False, verbosity=0)
        self._first_account()
        connections.close_all()
        # The programs of the children, celery and granian, are in the folder of this Python.
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        os.chdir(settings.BASE_DIR)
        procfile = parse_procfile((settings.BASE_DIR / "Procfile").read_text())
        self._started = timezone.now()
        if failure := ProcessManager(procfile.processes, watch=self._watch).run():
            raise CommandError(failure)
        self.stdout.write("Pulsekeeper has stopped.")

    def _first_account(self) -> None:
        if get_user_model().objects.exists():
            return
        email, given = settings.ADMIN_EMAIL, settings.ADMIN_PASSWORD
        password = given or secrets.token_urlsafe(12)
        try:
            create_account(email=email, password=password, plan=settings.ADMIN_PLAN, is_staff=True, is_superuser=True)
        except ValidationFailed as error:
            # The field is email, password or plan, as in the names of the variables.
            raise CommandError(f"ADMIN_{(error.field or '').upper()}: {error}") from error
        shown = "with the password that you set" if given else f"password {password} (shown only now)"
        self._say(f"First account: {email}, {shown}")

    def _watch(self, manager: ProcessManager) -> None:
        home = address(int(os.environ["PORT"]))
        silent = readiness.wait_until_answering(
            {
                "web": lambda: readiness.web_answers(home),
                "worker": lambda: readiness.worker_answers("probes"),
                "interactive": lambda: readiness.worker_answers("interactive"),
                "dispatcher": lambda: readiness.worker_answers("dispatcher"),
                "beat": lambda: readiness.beat_answers(self._started),
            },
            manager.ending,
        )
        if silent:
            manager.fail(f"no answer within {readiness.WAIT_SECONDS} s from: {', '.join(silent)}")
        elif not manager.ending.is_set():
            self._say(f"Pulsekeeper is up: {home}")
        before = server_pids(settings.DATA_DIR) if uses_embedded_servers() else None
        while not manager.ending.wait(LOOK_SECONDS):
            self._follow_networks(manager)
            if not uses_embedded_servers():
                continue
            now = server_pids(settings.DATA_DIR)
            if now is None:
                manager.fail(f"the private servers ended: see {settings.DATA_DIR / 'servers' / 'supervisor.log'}")
            elif now != before:
                self._say("A private server ended and was restarted.")
            before = now

    def _follow_networks(self, manager: ProcessManager) -> None:
        """Restart the processes that check after staff answered whether checks may reach private networks."""
        path = private_networks.answer_file()
        allowed = None if path is None else private_networks.read(path)
        if allowed is None:
            return
        networks = private_networks.networks(allowed=allowed)
        if networks != os.environ[private_networks.SETTING]:
            os.environ[private_networks.SETTING] = networks
            manager.restart(*PROBERS)
            self._say(f"Checks may {'' if allowed else 'not '}reach private networks.")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
