"""The application under test: the processes of the Procfile with a separate database and broker."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from email.message import EmailMessage
from functools import cache
from pathlib import Path

from celery import Celery
from django.db import connections
from django.db.utils import load_backend
from django.test import Client as DjangoClient
from django.test.utils import override_settings
from playwright.sync_api import BrowserContext

from accounts.hashing import SharedHasher
from accounts.models import Plan, User
from accounts.services import create_account
from devserver.session import Servers
from tests.alerts.inbox import Inbox, part
from tests.processes.client import PASSWORD, Client
from tests.processes.tree import Tree
from tests.processes.up import free_port
from tests.processes.waiting import until

UP_SECONDS = 60
MAIL_SECONDS = 30
WEB = "web-1"
WORKERS = ("probes", "interactive", "dispatcher")


_hash = cache(SharedHasher().encode)


class Hasher(SharedHasher):
    """Hash as the application's processes do, but hash each password only once in this process."""

    def salt(self) -> str:
        return "thesaltofallbrowsertests"

    def encode(self, password: str, salt: str) -> str:
        return _hash(password, salt)


HASHERS = [f"{__name__}.Hasher"]


@dataclass
class Application:
    """A running application. It sends e-mail to `inbox`, allows an interval of one second, and throttles nothing."""

    port: int
    inbox: Inbox
    servers: Servers
    tree: Tree
    unblock: Callable[[], AbstractContextManager[None]] = nullcontext
    """pytest-django's blocker, which denies the database to tests that do not request it."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def database(self) -> Iterator[None]:
        """Let models and services in the test's process work on this application's rows.

        For what no page and no endpoint does, like letting time pass. Tasks sent from here are not run: use the API or
        the page for first checks and test runs.
        """
        settings = deepcopy(connections.settings["default"])
        settings["NAME"] = self.servers.database_url.rpartition("/")[2].partition("?")[0]
        settings["OPTIONS"]["pool"] = False
        own = load_backend(settings["ENGINE"]).DatabaseWrapper(settings, "default")
        before = connections["default"]
        connections["default"] = own
        try:
            with closing(own), self.unblock():
                yield
        finally:
            connections["default"] = before

    def person(self, name: str = "anna", *, plan: str = "pro", staff: bool = False) -> Person:
        """Create an account with PASSWORD, whose address begins with `name`."""
        email = f"{name}-{next(self._numbers)}@example.com"
        with self.database(), override_settings(PASSWORD_HASHERS=HASHERS):
            user = create_account(email=email, password=PASSWORD, plan=plan, is_staff=staff, is_superuser=staff)
        return Person(self, user)

    @contextmanager
    def web_stopped(self) -> Iterator[None]:
        """Kill the web process, and start it again at the end."""
        self.tree.kill(WEB)
        try:
            yield
        finally:
            self.tree.start_one(WEB)
            _wait_until_up(self, everything=False)

    def restart_web(self) -> bool:
        """Restart the web process as a deployment does. Return whether it stopped in time."""
        in_time = self.tree.terminate(WEB)
        self.tree.start_one(WEB)
        _wait_until_up(self, everything=False)
        return in_time

    @contextmanager
    def web_hanging(self) -> Iterator[None]:
        """Suspend the web process: it accepts connections and does not answer."""
        pid = self.tree.members[WEB].pid
        assert pid is not None
        os.killpg(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(pid, signal.SIGCONT)

    def mail_to(self, address: str, *, about: str = "") -> EmailMessage:
        """Wait for an e-mail to this address whose subject contains `about`, and return the newest."""

        def found() -> EmailMessage | None:
            mails = [m for m in self.inbox.mails if m["To"] == address and about in m["Subject"]]
            return mails[-1] if mails else None

        mail = until(found, MAIL_SECONDS, f"a mail about {about!r} comes to {address}")
        assert mail is not None
        return mail

    def link_in(self, mail: EmailMessage, *, with_: str = "") -> str:
        """Return the first URL of this application in a mail that contains `with_`."""
        found: list[str] = re.findall(rf"{re.escape(self.address)}[^\s<>\"]*", part(mail, "plain"))
        return next(link for link in found if with_ in link)


@dataclass(frozen=True)
class Person:
    app: Application
    user: User

    @property
    def email(self) -> str:
        return self.user.email

    def client(self) -> Client:
        """A client of the API with their session, to set up a test: `with person.client() as client`."""
        return Client(self.app, self.email)

    def sign_in(self, context: BrowserContext) -> None:
        """Sign in without the form, for tests of later steps."""
        with self.app.database():
            client = DjangoClient()
            client.force_login(self.user)
        cookies = [(morsel.key, morsel.value) for morsel in client.cookies.values()]
        context.add_cookies([{"name": name, "value": value, "url": self.app.address} for name, value in cookies])


@contextmanager
def application(
    folder: Path,
    servers: Servers,
    *,
    counts: Mapping[str, int] | None = None,
    unblock: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[Application]:
    """Run the application on a migrated database, with logs in `folder`. `counts`: processes of a kind, as in Tree."""
    tree_counts = counts or {}
    with ExitStack() as stack:
        inbox = stack.enter_context(Inbox())
        port = free_port()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))},
            "DATA_DIR": str(folder),
            "DATABASE_URL": servers.database_url,
            "REDIS_URL": servers.redis_url,
            "PORT": str(port),
            "BASE_URL": f"http://127.0.0.1:{port}",
            "EMAIL_URL": f"smtp://127.0.0.1:{inbox.port}",
            "EMAIL_FROM": "Pulsekeeper <alerts@pulsekeeper.example>",
            "THROTTLE_SCALE": "0",
            "PRIVATE_NETWORKS_FILE": str(folder / "private-networks.json"),  # staff are asked, as with `manage.py up`
            "SIGN_UP": "true",
            # Shows the buttons; they lead to the real providers, which no test follows.
            **dict.fromkeys(("GITHUB_CLIENT_ID", "GITHUB_CLIENT_SECRET"), "none"),
            **dict.fromkeys(("GOOGLE_CLIENT_ID", "GOOGLE_CLIENT_SECRET"), "none"),
        }
        tree = Tree(environment, folder, counts=tree_counts)
        app = Application(port, inbox, servers, tree, unblock)
        with app.database():
            Plan.objects.update(min_interval_sec=1)
        stack.enter_context(tree)
        _wait_until_up(app, everything=not tree_counts)
        yield app


def _wait_until_up(app: Application, *, everything: bool) -> None:
    """Wait until the web process answers. `everything`: until the workers answer too, and a tick of beat arrived."""

    def answers() -> bool:
        assert not (ended := app.tree.ended()), {name: app.tree.log(name).read_text()[-4000:] for name in ended}
        try:
            with urllib.request.urlopen(f"{app.address}/{'readyz' if everything else 'healthz'}", timeout=5):
                return True
        except (OSError, urllib.error.HTTPError):
            return False

    until(answers, UP_SECONDS, "the application is ready")
    if everything:
        nodes = [f"{name}-1@{socket.gethostname()}" for name in WORKERS]
        with Celery(broker=app.servers.redis_url, set_as_current=False) as broker:
            until(
                lambda: len(broker.control.ping(nodes, timeout=1, limit=len(nodes)) or []) == len(nodes),
                UP_SECONDS,
                "all workers answer",
            )
