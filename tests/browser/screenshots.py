"""`make screenshots`: every page on a screen and on a telephone, in light and dark colours, in the folder screenshots/.

    python -m tests.browser.screenshots [part of a name]

Look at them. A new page is a line in PAGES.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import django
from django.core.management import call_command
from django.test.utils import override_settings
from playwright.sync_api import Page as Tab

from devserver.data_folder import load_or_create_secrets
from devserver.session import embedded_servers
from tests.browser.chromium import MISSING, chromium, find_chromium
from tests.processes.tree import ROOT

FOLDER = ROOT / "screenshots"
SIZES = {1280: 800, 390: 844}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@dataclass(frozen=True)
class Page:
    """`path` may name what `scene.build` gives in its places; `act` is done to the page before the picture."""

    name: str
    path: str
    signed_in: bool = True
    status: int = 200
    act: Callable[[Tab], object] | None = None


def _confirm_access(tab: Tab) -> None:
    """The password is asked for once more, in each context once."""
    from tests.helpers import PASSWORD  # imports models

    if "/account/confirm/" in tab.url:
        tab.get_by_label("Password").fill(PASSWORD)
        tab.get_by_role("button", name="Continue").click()
        tab.wait_for_url(lambda url: "/account/confirm/" not in url, wait_until="networkidle")


def _send_nothing(tab: Tab) -> None:
    tab.get_by_role("button", name="Create monitor").click()
    tab.get_by_role("alert").wait_for()


def _send_a_wrong_key(tab: Tab) -> None:
    tab.get_by_label("Integration key").fill("too short")
    tab.get_by_role("button", name="Add channel").click()
    tab.locator(".errorlist").first.wait_for()


def _open_advanced(tab: Tab) -> None:
    tab.locator("#advanced > summary").click()


def _type_a_schedule(tab: Tab) -> None:
    tab.get_by_label("On a schedule").check()
    tab.get_by_label("Schedule", exact=True).fill("30 2 * * MON-FRI")
    tab.get_by_label("Time zone").fill("America/New_York")
    tab.locator("#schedule-preview", has_text="America/New_York").get_by_role("table").wait_for()


def _open_check(tab: Tab) -> None:
    tab.locator("#checks summary").first.click()


def _open_signal(tab: Tab) -> None:
    tab.locator("#signals summary", has_text="exit status 1").first.click()


def _upload(tab: Tab) -> None:
    tab.get_by_role("radio", name="Uptime Kuma").check()
    tab.get_by_label("File").set_input_files(ROOT / "tests" / "importers" / "samples" / "uptime-kuma-v1.json")
    tab.get_by_role("button", name="Preview").click()
    tab.get_by_role("heading", name="Preview").wait_for()


PAGES = (
    Page("monitor-new", "/monitors/new"),
    Page("monitor-new-scheduler", "/monitors/new?type=scheduler"),
    Page("monitor-new-schedule", "/monitors/new?type=scheduler", act=_type_a_schedule),
    Page("monitor-new-port", "/monitors/new?type=port", act=_open_advanced),
    Page("monitor-new-udp", "/monitors/new?type=udp", act=_open_advanced),
    Page("monitor-new-ping", "/monitors/new?type=ping"),
    Page("monitor-new-dns", "/monitors/new?type=dns"),
    Page("monitor-new-wrong", "/monitors/new?type=api", act=_send_nothing),
    Page("monitor-import", "/monitors/import"),
    Page("monitor-import-preview", "/monitors/import", act=_upload),
    Page("monitor-badges", "/monitors/{monitor}/badges"),
    Page("monitor-edit", "/monitors/{monitor}/edit"),
    Page("projects", "/projects"),
    Page("project", "/projects/{project}"),
    Page("project-log", "/projects/{project}/log"),
    Page("account-log", "/account/log/"),
    Page("account-log-none", "/account/log/?action=connector.unlinked"),
    Page("account-export", "/account/export/", act=_confirm_access),
    Page("tokens", "/tokens"),
    Page("token-new", "/tokens/new"),
    Page("monitors", "/monitors"),
    Page("monitors-grouped", "/monitors?grouped=1&sort=uptime"),
    Page("monitors-chosen", "/monitors", act=lambda tab: tab.get_by_label("Checkout").check()),
    Page("monitor", "/monitors/{monitor}", act=lambda tab: tab.locator(".u-over").wait_for()),
    Page("monitor-down", "/monitors/{down}", act=_open_check),
    Page("monitor-failing", "/monitors/{failing}"),
    Page("monitor-muted", "/monitors/{muted}"),
    Page("monitor-stale", "/monitors/{stale}"),
    Page("monitor-port", "/monitors/{port}", act=_open_check),
    Page("monitor-udp", "/monitors/{udp}"),
    Page("monitor-ping", "/monitors/{ping}"),
    Page("monitor-ping-down", "/monitors/{ping_down}", act=_open_check),
    Page("monitor-dns", "/monitors/{dns}", act=_open_check),
    Page("monitor-heartbeat", "/monitors/{heartbeat}"),
    Page("monitor-job", "/monitors/{job}", act=_open_signal),
    Page("monitor-signals", "/monitors/{job}/signals", act=lambda tab: tab.locator(".checks summary").nth(2).click()),
    Page("monitor-signals-found", "/monitors/{job}/signals?kind=fail&text=traceback"),
    Page("incidents", "/incidents"),
    Page("incident", "/incidents/{incident}", act=lambda tab: tab.locator("summary", has_text="Response body").click()),
    Page("incident-declare", "/incidents/declare"),
    Page("channels", "/alert-channels"),
    Page("channel", "/alert-channels/{channel}"),
    Page("channel-choose", "/alert-channels/new"),
    Page("channel-new", "/alert-channels/new?kind=apprise&service=zulip"),
    Page("channel-new-slack", "/alert-channels/new?kind=slack"),
    Page("channel-new-ntfy", "/alert-channels/new?kind=ntfy"),
    Page("channel-refused", "/alert-channels/new?kind=pagerduty", act=_send_a_wrong_key),
    Page("channel-pager", "/alert-channels/{pager}/edit"),
    Page("connectors", "/connectors"),
    Page("windows", "/maintenance"),
    Page("window", "/maintenance/{window}"),
    Page("window-new", "/maintenance/new", act=lambda tab: tab.get_by_label("Every week").check()),
    Page("channel-edit", "/alert-channels/{channel}/edit"),
    Page("account", "/account/"),
    Page("account-email", "/account/email/"),
    Page("account-password", "/account/password/"),
    Page("account-sessions", "/account/sessions/"),
    Page("account-second-factor", "/account/second-factor/"),
    Page("account-delete", "/account/delete/", act=_confirm_access),
    Page("account-app", "/account/second-factor/app/", act=_confirm_access),
    Page("account-sign-in", "/account/login/", signed_in=False),
    Page("account-sign-up", "/account/signup/", signed_in=False),
    Page("account-forgotten", "/account/password/reset/", signed_in=False),
    Page("account-sent", "/account/confirm-email/", signed_in=False),
    Page("status-pages", "/status-pages"),
    Page("status-pages-new", "/status-pages/new"),
    Page("status-pages-detail", "/status-pages/{status_page}"),
    Page("status-pages-edit", "/status-pages/{status_page}/edit"),
    Page("status", "/status/{slug}", signed_in=False),
    Page(
        "status-days",
        "/status/{slug}",
        signed_in=False,
        act=lambda tab: tab.locator("summary", has_text="Checkout").click(),
    ),
    Page("status-history", "/status/{slug}/history/" + f"{datetime.now(UTC):%Y-%m}", signed_in=False),
    Page("status-password", "/status/{locked}", signed_in=False, status=403),
    Page("status-gone", "/status/nothing-here", signed_in=False, status=404),
    Page("docs", "/docs", signed_in=False),
    Page("admin", "/admin/login/", signed_in=False),
)


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    pages = [page for page in PAGES if wanted in page.name]
    executable = find_chromium()
    if not pages or executable is None:
        names = ", ".join(page.name for page in PAGES)
        print(MISSING if pages else f"no page is named like {wanted!r}: {names}", file=sys.stderr)  # noqa: T201
        return 1
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-screenshots-") as name, ExitStack() as stack:
        _photograph(stack, Path(name), executable, pages)
    return 0


def _photograph(stack: ExitStack, folder: Path, executable: str, pages: list[Page]) -> None:
    servers = stack.enter_context(embedded_servers(folder))
    os.environ.update(
        load_or_create_secrets(folder),
        DATABASE_URL=servers.database_url,
        REDIS_URL=servers.redis_url,
        DJANGO_SETTINGS_MODULE="config.settings",
    )
    django.setup()
    call_command("migrate", verbosity=0)
    # They import models.
    from tests.browser import scene
    from tests.browser.application import Person, application

    # Only the web server: what is shown is what was made, and not what happens to it.
    others = dict.fromkeys(("worker", "interactive", "dispatcher", "beat"), 0)
    app = stack.enter_context(application(folder, servers, counts=others))
    with app.database(), override_settings(EMAIL_BACKEND="django.core.mail.backends.dummy.EmailBackend"):
        shown = scene.build()
    browser = stack.enter_context(chromium(executable))
    FOLDER.mkdir(exist_ok=True)
    for width, height in SIZES.items():
        for signed_in in (True, False):
            context = browser.new_context(
                base_url=app.address,
                viewport={"width": width, "height": height},
                reduced_motion="reduce",
                timezone_id="Europe/Berlin",
                locale="en-GB",
            )
            if signed_in:
                Person(app, shown.owner).sign_in(context)
            tab = context.new_page()
            for page in pages:
                if page.signed_in is signed_in:
                    _take(tab, page, shown.places, width=width)
            context.close()


def _take(tab: Tab, page: Page, places: dict[str, str], *, width: int) -> None:
    path = page.path.format(**places)
    for scheme in SCHEMES:
        tab.emulate_media(color_scheme=scheme)
        answer = tab.goto(path, wait_until="networkidle")
        assert answer is not None
        if answer.status != page.status:
            print(f"{path} answered {answer.status}", file=sys.stderr)  # noqa: T201
        if page.act is not None:
            page.act(tab)
        tab.screenshot(path=FOLDER / f"{page.name}-{width}-{scheme}.png", full_page=True)
    print(f"{page.name} at {width}")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
