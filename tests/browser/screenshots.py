"""`make screenshots`: every page on a desktop and on a phone, in light and dark colours, in the folder screenshots/.

    python -m tests.browser.screenshots [parts of names, with commas | readme]

Review them. A new page is a line in PAGES. `readme` captures the pictures of README, in docs/screenshots/.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import django
from django.core.management import call_command
from django.test.utils import override_settings
from PIL import Image
from playwright.sync_api import Browser
from playwright.sync_api import Page as Tab

from devserver.data_folder import load_or_create_secrets
from devserver.session import embedded_servers
from tests.browser.chromium import MISSING, chromium, find_chromium
from tests.processes.tree import ROOT
from tests.targets.certificates import Certificates
from tests.targets.names import Name
from tests.targets.server import Pause, Script, TargetServer, answer

if TYPE_CHECKING:  # they import models
    from tests.browser.application import Application
    from tests.browser.scene import Scene

FOLDER, README_FOLDER = ROOT / "screenshots", ROOT / "docs" / "screenshots"
README = "readme"
SIZES = {1280: 800, 390: 844}
SCALE = 2
"""Pixels of the picture for each CSS pixel, as on most screens."""
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
SHOP, SHOP_PORT = "shop.larkandpine.example", 8443


@dataclass(frozen=True)
class Page:
    """`path` may contain names of `scene.build`'s places; `act` prepares the page before the picture.

    `act_status`: the status of the page that `act` leads to.
    """

    name: str
    path: str
    signed_in: bool = True
    status: int = 200
    act: Callable[[Tab], object] | None = None
    act_status: int = 200


def _confirm_access(tab: Tab) -> None:
    """Confirm the password again, once in each context."""
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


def _preview_templates(tab: Tab) -> None:
    tab.locator("summary", has_text="Templates").click()
    tab.get_by_label("Outage: title").fill("{{ monitor.name }} is down: {{ detail }}")
    tab.get_by_label("Outage: text").fill("{{ text }}\n\nRunbook: https://wiki.example/shop\n{{ link }}")
    tab.get_by_label("Recovery: text").fill("{{ text }\n{% if %}")
    tab.get_by_role("button", name="Preview templates").click()
    tab.get_by_role("heading", name="Preview: Recovery").wait_for()


def _open_advanced(tab: Tab) -> None:
    tab.locator("#advanced > summary").click()


def _type_a_schedule(tab: Tab) -> None:
    tab.get_by_label("On a schedule").check()
    tab.get_by_label("Schedule", exact=True).fill("30 2 * * MON-FRI")
    tab.get_by_label("Time zone").fill("America/New_York")
    tab.locator("#schedule-preview", has_text="America/New_York").get_by_role("table").wait_for()


def _try_on_the_past(tab: Tab) -> None:
    tab.get_by_label("Failures before down").fill("1")
    tab.get_by_role("button", name="Replay past checks").click()
    result = tab.locator("#backtest-result")
    result.get_by_role("table").wait_for()
    result.locator("summary").click()
    result.scroll_into_view_if_needed()


def _open_check(tab: Tab) -> None:
    tab.locator("#checks summary").first.click()


def _open_changes(tab: Tab) -> None:
    tab.locator("summary", has_text="Changes").click()
    tab.locator("#changes ol").wait_for()
    tab.locator("#changes").scroll_into_view_if_needed()


def _open_signal(tab: Tab) -> None:
    tab.locator("#signals summary", has_text="exit status 1").first.click()


def _send_outdated(tab: Tab) -> None:
    """Change the name and the last value, as in another tab after this one was opened."""
    form = tab.locator("form:has([name=form_etag]):has([name=name])")
    form.locator("[name=name]").fill("The name that was typed here, which is not the one that is stored")
    form.evaluate(
        """form => {
            form.elements.form_etag.value = '"outdated"';
            form.querySelectorAll("input[type=checkbox]:not([role])").forEach((box, n) => { if (n < 2) box.click(); });
            form.requestSubmit(form.querySelector("[type=submit]:not([name])"));
        }"""
    )
    tab.locator("table", has_text="Stored").wait_for()


def _delete_outdated(tab: Tab) -> None:
    tab.locator("form[action$='/delete']").last.evaluate(
        """form => {
            form.elements.form_etag.value = '"outdated"';
            const tags = form.elements.form_opened.value.split("\\n");
            form.elements.form_opened.value = tags.map((line, n) => n < 3 ? `x${line}` : line).join("\\n");
            form.submit();
        }"""
    )
    tab.get_by_text("Nothing was deleted.").wait_for()


_CHANGES = count(1)


def _edit_two(tab: Tab) -> None:
    for name in ("Checkout", "Search"):
        tab.get_by_role("checkbox", name=name, exact=True).check()
    tab.get_by_role("button", name="Edit", exact=True).click()
    tab.get_by_role("heading", name="Edit 2 monitors").wait_for()


def _preview_two(tab: Tab) -> None:
    _edit_two(tab)
    # Another one for each picture: there must be something to change.
    tab.get_by_label("Add tags").fill(f"production, change-{next(_CHANGES)}")
    tab.get_by_label("Timeout").fill("5s")
    tab.get_by_role("button", name="Preview").click()
    tab.get_by_role("heading", name="Change 2 monitors?").wait_for()


def _apply_to_two(tab: Tab) -> None:
    _preview_two(tab)
    tab.get_by_role("button", name="Change 2 monitors").click()
    tab.get_by_role("button", name="Undo").wait_for()


def _delete_two(tab: Tab) -> None:
    for name in ("Checkout", "Search"):
        tab.get_by_role("checkbox", name=name, exact=True).check()
    tab.get_by_role("button", name="Delete").click()
    tab.get_by_role("heading", name="Delete 2 monitors?").wait_for()


def _create_a_location(tab: Tab) -> None:
    tab.get_by_label("Name").fill("Data center")
    tab.get_by_role("button", name="Create location").click()
    tab.locator("#command").wait_for()


def _test_a_draft(tab: Tab) -> None:
    """Let a worker check a server of this process, by a name of our own name server."""
    tab.locator("#id_url").fill(f"https://{SHOP}:{SHOP_PORT}/health")
    tab.locator("#id_name").fill("Shop")
    tab.locator("#test").click()
    tab.locator("#test-run .test-run").wait_for(timeout=60_000)
    tab.locator("#id_name").blur()


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
    Page("monitor-copy", "/monitors/new?from={monitor}", act=_open_advanced),
    Page("monitor-import", "/monitors/import"),
    Page("monitor-import-preview", "/monitors/import", act=_upload),
    Page("monitor-changes", "/monitors/{monitor}/changes"),
    Page("monitor-changes-card", "/monitors/{monitor}", act=_open_changes),
    Page("monitor-badges", "/monitors/{monitor}/badges"),
    Page("monitor-edit", "/monitors/{monitor}/edit"),
    Page("monitor-backtest", "/monitors/{monitor}/edit", act=_try_on_the_past),
    Page("projects", "/projects"),
    Page("project", "/projects/{project}"),
    Page("project-log", "/projects/{project}/log"),
    Page("account-log", "/account/log/"),
    Page("account-log-none", "/account/log/?action=connector.unlinked"),
    Page("account-export", "/account/export/", act=_confirm_access),
    Page("locations", "/locations"),
    Page("location", "/locations/{location}"),
    Page("location-private", "/locations/{private_location}"),
    Page("location-new", "/locations", act=_create_a_location),
    Page("tokens", "/tokens"),
    Page("token-new", "/tokens/new"),
    Page("monitors", "/monitors"),
    Page("monitors-grouped", "/monitors?grouped=1&sort=uptime"),
    Page("monitors-dependents", "/monitors?depends_on={port}"),
    Page("monitors-compact", "/monitors", act=lambda tab: tab.get_by_label("Compact rows").check()),
    Page("monitors-chosen", "/monitors", act=lambda tab: tab.get_by_label("Checkout").check()),
    Page("monitors-delete", "/monitors", act=_delete_two),
    Page("monitors-edit", "/monitors", act=_edit_two),
    Page("monitors-edit-preview", "/monitors", act=_preview_two),
    Page("monitors-edited", "/monitors", act=_apply_to_two),
    Page("monitor", "/monitors/{monitor}", act=lambda tab: tab.locator(".u-over").wait_for()),
    Page("monitor-locations", "/monitors/{monitor}", act=_open_check),
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
    Page("incident-escalating", "/incidents/{escalating}"),
    Page("incident-declare", "/incidents/declare"),
    Page("channels", "/alert-channels"),
    Page("channel", "/alert-channels/{channel}"),
    Page("channel-choose", "/alert-channels/new"),
    Page("channel-new", "/alert-channels/new?kind=apprise&service=zulip"),
    Page("channel-new-slack", "/alert-channels/new?kind=slack"),
    Page("channel-new-ntfy", "/alert-channels/new?kind=ntfy"),
    Page("channel-copy", "/alert-channels/new?from={channel}"),
    Page("channel-refused", "/alert-channels/new?kind=pagerduty", act=_send_a_wrong_key),
    Page("channel-pager", "/alert-channels/{pager}/edit"),
    Page("connectors", "/connectors"),
    Page("windows", "/maintenance"),
    Page("window", "/maintenance/{window}"),
    Page("window-new", "/maintenance/new", act=lambda tab: tab.get_by_label("Every week").check()),
    Page("window-copy", "/maintenance/new?from={window}"),
    Page("on-call", "/on-call"),
    Page("on-call-schedule", "/on-call/schedules/{on_call}"),
    Page("on-call-month", "/on-call/schedules/{on_call}?view=month&zone=America/New_York"),
    Page("on-call-schedule-edit", "/on-call/schedules/{on_call}/edit"),
    Page("on-call-schedule-new", "/on-call/schedules/new?project={project}"),
    Page("on-call-policies", "/on-call/policies"),
    Page("on-call-policy", "/on-call/policies/{policy}"),
    Page("on-call-simulated", "/on-call/policies/{policy}?at=2027-01-03T03:00&zone=Europe/Berlin"),
    Page("on-call-policy-edit", "/on-call/policies/{policy}/edit"),
    Page("on-call-shifts", "/on-call/shifts"),
    Page("on-call-contact", "/account/contact/"),
    Page("channel-edit", "/alert-channels/{channel}/edit"),
    Page("channel-templates", "/alert-channels/{channel}/edit", act=_preview_templates),
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
    Page("status-pages-copy", "/status-pages/new?from={status_page}"),
    Page("status-pages-detail", "/status-pages/{status_page}"),
    Page("status-pages-edit", "/status-pages/{status_page}/edit"),
    Page("outdated-monitor", "/monitors/{monitor}/edit", act=_send_outdated),
    Page("outdated-channel", "/alert-channels/{channel}/edit", act=_send_outdated),
    Page("outdated-window", "/maintenance/{window}", act=_send_outdated),
    Page("outdated-status-page", "/status-pages/{status_page}/edit", act=_send_outdated),
    Page("outdated-project", "/projects/{project}", act=_send_outdated),
    Page("deleted-monitor", "/monitors/{monitor}", act=_delete_outdated, act_status=412),
    Page("deleted-channel", "/alert-channels/{channel}/edit", act=_delete_outdated, act_status=412),
    Page("deleted-window", "/maintenance/{window}", act=_delete_outdated, act_status=412),
    Page("deleted-status-page", "/status-pages/{status_page}", act=_delete_outdated, act_status=412),
    Page("deleted-project", "/projects/{project}", act=_delete_outdated, act_status=412),
    Page("acknowledge", "/a/{to_acknowledge}", signed_in=False),
    Page("acknowledged", "/a/{acknowledged}", signed_in=False),
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


PICTURES: tuple[tuple[Page, int, Scheme], ...] = (
    (Page("monitors-light", "/monitors"), 1280, "light"),
    (Page("monitors-dark", "/monitors"), 1280, "dark"),
    (Page("monitors-phone", "/monitors"), 390, "light"),
    (Page("monitor-down-light", "/monitors/{down}", act=lambda tab: tab.locator(".u-over").wait_for()), 1280, "light"),
    (Page("monitor-new-dark", "/monitors/new?type=http", act=_test_a_draft), 1280, "dark"),
    (Page("heartbeat-runs-light", "/monitors/{job}"), 1280, "light"),
    (Page("incident-light", "/incidents/{incident}"), 1280, "light"),
    (Page("status-light", "/status/{slug}", signed_in=False), 1280, "light"),
    (Page("status-phone", "/status/{slug}", signed_in=False), 390, "light"),
)
"""The pictures of README, in docs/screenshots, with their widths. One monitor is down in them."""


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    pages = [page for page in PAGES if any(part in page.name for part in wanted.split(","))]
    executable = find_chromium()
    if not (pages or wanted == README) or executable is None:
        names = ", ".join(page.name for page in PAGES)
        print(MISSING if pages else f"no page is named like {wanted!r}: {names}", file=sys.stderr)  # noqa: T201
        return 1
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-screenshots-") as name, ExitStack() as stack:
        camera = _set_up(stack, Path(name), executable, calm=wanted == README)
        if wanted == README:
            _take_pictures(camera)
        else:
            _photograph(camera, pages)
    return 0


@dataclass(frozen=True)
class Camera:
    """A browser, and the running application with the scene."""

    browser: Browser
    app: Application
    scene: Scene

    def tab(self, width: int, *, signed_in: bool) -> Tab:
        from tests.browser.application import Person  # imports models

        context = self.browser.new_context(
            base_url=self.app.address,
            viewport={"width": width, "height": SIZES[width]},
            reduced_motion="reduce",
            timezone_id="Europe/Berlin",
            locale="en-GB",
            device_scale_factor=SCALE,
        )
        if signed_in:
            Person(self.app, self.scene.owner).sign_in(context)
        return context.new_page()


def _set_up(stack: ExitStack, folder: Path, executable: str, *, calm: bool) -> Camera:
    servers = stack.enter_context(embedded_servers(folder))
    os.environ.update(
        load_or_create_secrets(folder),
        DATABASE_URL=servers.database_url,
        REDIS_URL=servers.redis_url,
        DJANGO_SETTINGS_MODULE="config.settings",
        STATUS_PAGE_DOMAINS=".larkandpine.example",
    )
    django.setup()
    call_command("migrate", verbosity=0)
    # They import models.
    from projects.access import Caller
    from statuspages.services import update_page
    from tests.browser import scene
    from tests.browser.application import application

    # Only the web server, so that the scene does not change.
    counts = dict.fromkeys(("worker", "interactive", "dispatcher", "beat"), 0)
    if calm:
        _serve_shop(stack, folder)
        counts["interactive"] = 1  # executes the test run
    app = stack.enter_context(application(folder, servers, counts=counts))
    with app.database(), override_settings(EMAIL_BACKEND="django.core.mail.backends.dummy.EmailBackend"):
        shown = scene.build(calm=calm)
        if not calm:
            page_id, domain = shown.places["status_page"], {"custom_domain": "status.larkandpine.example"}
            update_page(Caller(shown.owner), page_id, domain)
    return Camera(stack.enter_context(chromium(executable)), app, shown)


def _serve_shop(stack: ExitStack, folder: Path) -> None:
    """Serve SHOP with a good certificate, and set the environment so that workers find and trust it."""
    certificates, targets = Certificates(folder), stack.enter_context(TargetServer())
    routes: Script = [Pause(0.06), answer(200, b'{"status": "ok"}', "Content-Type: application/json", reason="OK")]
    targets.serve(routes, port=SHOP_PORT, tls=certificates.for_host(SHOP))
    os.environ.update(
        ALLOWED_PRIVATE_NETWORKS="127.0.0.0/8",
        DNS_SERVERS=targets.serve_names({SHOP: Name(("127.0.0.1",))}).address,
        SSL_CERT_FILE=certificates.ca_file,
    )


def _photograph(camera: Camera, pages: list[Page]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for width in SIZES:
        for signed_in in (True, False):
            tab = camera.tab(width, signed_in=signed_in)
            for page in pages:
                if page.signed_in is not signed_in:
                    continue
                for scheme in SCHEMES:
                    _open(tab, page, camera.scene.places, scheme)
                    tab.screenshot(path=FOLDER / f"{page.name}-{width}-{scheme}.png", full_page=True)
                print(f"{page.name} at {width}")  # noqa: T201
            tab.context.close()


def _take_pictures(camera: Camera) -> None:
    for page, width, scheme in PICTURES:
        tab = camera.tab(width, signed_in=page.signed_in)
        _open(tab, page, camera.scene.places, scheme)
        tab.evaluate("scrollTo(0, 0)")
        path = README_FOLDER / f"{page.name}.png"
        tab.screenshot(path=path)
        tab.context.close()
        with Image.open(path) as picture:  # a third of the size, without a visible difference
            small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        small.save(path, optimize=True)
        print(f"{path.name}: {path.stat().st_size // 1024} KiB")  # noqa: T201


def _open(tab: Tab, page: Page, places: dict[str, str], scheme: Scheme) -> None:
    path = page.path.format(**places)
    tab.emulate_media(color_scheme=scheme)
    response = tab.goto(path, wait_until="networkidle")
    assert response is not None
    if response.status != page.status:
        print(f"{path} answered {response.status}", file=sys.stderr)  # noqa: T201
    if page.act is not None:
        page.act(tab)


if __name__ == "__main__":
    sys.exit(main())
