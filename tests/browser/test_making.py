"""Creating and changing monitors, projects and tokens on their pages."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from playwright.sync_api import Page, expect

from accounts.models import User
from tests.browser.application import Application
from tests.browser.axe import axe
from tests.browser.browsing import Browse
from tests.browser.keyboard import Keyboard
from tests.factories import ChannelFactory, MonitorFactory, ProjectFactory
from tests.site import Site

PHONE = {"width": 390, "height": 844}


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_a_monitor_is_made_by_keyboard_alone(app: Application, browse: Browse, site: Site) -> None:
    page = browse(app.person())
    keyboard = Keyboard(page)
    page.goto("/monitors/new")
    axe(page)
    keyboard.fill(page.get_by_label("Address"), site.url("/ok"))
    keyboard.reach(page.get_by_role("radio", name="Website"))
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name="Keyword")).to_be_checked()
    keyboard.fill(page.get_by_label("Text", exact=True).first, "nowhere")
    expect(page.get_by_role("group", name="Rule 2")).to_be_visible()
    keyboard.press(page.get_by_role("button", name="Test run"))
    expect(page.locator("#test-run")).to_contain_text("Down")
    axe(page)
    keyboard.fill(page.get_by_label("Text", exact=True).first, "ok")
    keyboard.press(page.get_by_role("button", name="Test run"))
    expect(page.locator("#test-run")).to_contain_text("HTTP 200")
    keyboard.press(page.get_by_role("button", name="Create monitor"))
    expect(page.get_by_role("heading", name="127.0.0.1", level=1)).to_be_visible()


def test_the_address_is_first_on_a_phone(app: Application, browse: Browse) -> None:
    page = browse(app.person(), viewport=PHONE)
    page.goto("/monitors/new")
    for kind in ("Website", "Port", "DNS"):
        page.get_by_role("radio", name=kind, exact=True).check()
        box, chooser = (page.locator(name).bounding_box() for name in ("#id_url", "#kinds"))
        assert box is not None
        assert chooser is not None
        assert box["y"] + box["height"] <= chooser["y"], kind
        assert box["y"] + box["height"] + page.evaluate("scrollY") <= PHONE["height"] / 2, kind
        assert chooser["height"] <= PHONE["height"] / 4
    assert fits(page)
    expect(page.locator("#monitor-form").locator("input:not([type=hidden]), select").first).to_have_id("id_url")
    axe(page)


def test_what_is_typed_during_a_test_run_stays(app: Application, browse: Browse, site: Site) -> None:
    page = browse(app.person())
    page.goto("/monitors/new")
    page.get_by_label("Address").fill(site.url("/hang"))
    page.get_by_label("Timeout").fill("2s")
    page.get_by_role("button", name="Test run").click()
    page.get_by_label("Name", exact=True).first.fill("Typed during the run")
    expect(page.locator("#test-run")).to_contain_text("Down")
    expect(page.get_by_label("Name", exact=True).first).to_have_value("Typed during the run")


def test_a_test_run_shows_what_is_wrong_with_the_form(app: Application, browse: Browse) -> None:
    page = browse(app.person())
    page.goto("/monitors/new?type=api")
    page.get_by_label("Address").fill("https://shop.example/")
    page.get_by_label("Text", exact=True).first.fill("ok")
    page.get_by_role("button", name="Test run").click()
    problem = page.get_by_role("alert").get_by_role("link", name="Path in the JSON")
    problem.click()
    path = page.get_by_label("Path in the JSON").first
    expect(path).to_be_focused()
    axe(page)
    path.fill("status")
    expect(path).not_to_have_attribute("aria-invalid", "true")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert fits(page)


def test_a_suggested_value_is_taken_by_a_click(app: Application, browse: Browse) -> None:
    page = browse(app.person())
    page.goto("/monitors/new")
    chip = page.locator("button[data-fills$=timeout_ms]", has_text="30s")
    chip.click()
    expect(page.get_by_label("Timeout")).to_have_value("30s")
    expect(chip).to_have_attribute("aria-pressed", "true")


def test_a_heartbeat_is_made_without_scripts(app: Application, browse: Browse) -> None:
    page = browse(app.person(), java_script_enabled=False)
    page.goto("/monitors/new")
    page.get_by_role("radio", name="Heartbeat").check()
    expect(page.get_by_label("Address")).to_be_hidden()
    page.get_by_label("Name", exact=True).first.fill("Nightly backup")
    page.get_by_label("Grace").fill("often")
    page.get_by_role("button", name="Create monitor").click()
    expect(page.get_by_role("alert")).to_contain_text("Grace")
    page.get_by_label("Grace").fill("15m")
    page.get_by_role("button", name="Create monitor").click()
    expect(page.get_by_role("heading", name="Nightly backup", level=1)).to_be_visible()


def test_a_schedule_is_explained_while_it_is_typed(app: Application, browse: Browse) -> None:
    page = browse(app.person(), timezone_id="Europe/Berlin")
    page.goto("/monitors/new?type=heartbeat")
    interval, schedule = page.get_by_label("A ping comes every"), page.get_by_label("Schedule", exact=True)
    zone, preview = page.get_by_label("Time zone"), page.locator("#schedule-preview")
    expect(schedule).to_be_hidden()
    page.get_by_label("On a schedule").check()
    expect(interval).to_be_hidden()
    expect(zone).to_have_value("Europe/Berlin")
    page.get_by_role("button", name="weekdays at 9:00").click()
    expect(schedule).to_have_value("0 9 * * MON-FRI")
    expect(preview.get_by_role("row")).to_have_count(6)
    expect(preview.get_by_role("columnheader", name="Your time")).to_be_hidden()
    axe(page)
    zone.fill("America/New_York")
    expect(preview.get_by_role("columnheader", name="Your time")).to_be_visible()
    expect(preview.get_by_role("row").nth(1)).to_contain_text(re.compile(r", 09:00.*, 1[45]:00"))
    axe(page)
    schedule.fill("0 9 * *")
    expect(preview).to_contain_text("Has 4 fields. Write five fields")
    axe(page)
    schedule.fill("0 9 * * 1")
    expect(preview).to_contain_text("At 09:00")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert fits(page)
    page.get_by_role("radio", name="Website").check()
    expect(schedule).to_be_hidden()
    expect(page.get_by_label("Check every")).to_be_visible()
    page.get_by_role("radio", name="Heartbeat").check()
    page.get_by_role("button", name="Create monitor").click()
    expect(page.locator("dl.facts")).to_contain_text("America/New_York")


def test_the_form_fits_each_type(app: Application, browse: Browse, site: Site) -> None:
    page = browse(app.person())
    page.goto("/monitors/new?type=api")
    address, rule = page.locator("#id_url"), page.get_by_label("Rule", exact=True).first
    page.locator("#advanced > summary").click()
    labels = ["Port", "Encryption", "Record type", "Resolver", "Method", "Text", "Body", "Encoding of the body"]
    labels += ["Packets", "Expected records", "Expected status"]
    fields = {label: page.get_by_label(label, exact=True).and_(page.locator(":not([type=radio])")) for label in labels}
    shown = {
        "Port": ["Port", "Encryption", "Text", "Body", "Encoding of the body"],
        "UDP": ["Port", "Text", "Body", "Encoding of the body"],
        "Ping": ["Packets"],
        "DNS": ["Record type", "Resolver", "Text", "Expected records"],
        "Website": ["Method", "Text", "Body", "Expected status"],
    }
    for name, label, example in (
        ("Port", "Host", "db.example"),
        ("UDP", "Host", "game.example"),
        ("Ping", "Host", "router.example"),
        ("DNS", "Domain name", "shop.example"),
        ("Website", "Address", "https://shop.example/health"),
    ):
        page.get_by_role("radio", name=name, exact=True).check()
        expect(page.get_by_role("textbox", name=label, exact=True)).to_have_attribute("placeholder", example)
        visible = [label for label, field in fields.items() if field.first.is_visible()]
        assert visible == shown[name], name
        if name != "Ping":
            expect(rule).to_have_value("contains")
            options = [
                option
                for option in rule.locator("option").all()
                if option.evaluate("o => getComputedStyle(o).display !== 'none'")
            ]
            assert len(options) == (4 if name == "Website" else 2), name
        axe(page)
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        assert fits(page)
        page.set_viewport_size({"width": 1280, "height": 800})

    page.get_by_role("radio", name="Port", exact=True).check()
    address.fill(site.url("/ok"))
    page.get_by_role("button", name="Test run").click()
    problem = page.get_by_role("alert").get_by_role("link", name="Host")
    expect(problem).to_be_visible()
    address.fill(f"tcp://{urlsplit(site.url('/')).netloc}")
    page.get_by_role("button", name="Test run").click()
    expect(page.locator("#test-run")).to_contain_text(re.compile(r"Up\s+Connected after"))
    page.get_by_role("button", name="Create monitor").click()
    expect(page.get_by_role("heading", name="127.0.0.1", level=1)).to_be_visible()
    expect(page.get_by_role("heading", name="Reproduce with nc")).to_be_visible()
    axe(page)


def test_the_address_is_shown_while_its_parts_are_typed(app: Application, browse: Browse) -> None:
    page = browse(app.person())
    page.goto("/monitors/new?type=port")
    host, address = page.locator("#id_url"), page.locator("#address")
    expect(address).to_be_hidden()
    host.fill("mail.example")
    page.get_by_role("textbox", name="Port", exact=True).fill("25")
    expect(address).to_have_text("tcp://mail.example:25")
    page.get_by_label("Encryption").select_option("STARTTLS, smtp")
    expect(address).to_have_text("tls://mail.example:25?starttls=smtp")
    host.fill(' "tls://[2001:db8::1]:993" ')
    host.blur()
    expect(host).to_have_value("2001:db8::1")
    expect(page.get_by_label("Encryption")).to_have_value("tls")
    expect(address).to_have_text("tls://[2001:db8::1]:993")
    axe(page)
    page.get_by_role("radio", name="DNS").check()
    host.fill("shop.example")
    page.get_by_label("Record type").select_option("MX")
    expect(address).to_have_text("dns:shop.example?type=MX")
    page.get_by_label("Resolver").fill("192.0.2.53")
    expect(address).to_have_text("dns://192.0.2.53/shop.example?type=MX")
    axe(page)
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert fits(page)
    page.get_by_label("Resolver").fill("")
    page.get_by_role("button", name="Create monitor").click()
    expect(page.get_by_role("heading", name="shop.example MX", level=1)).to_be_visible()
    expect(page.get_by_text("dns:shop.example?type=MX").first).to_be_visible()


def test_a_pasted_web_address_is_completed_by_its_test(app: Application, browse: Browse, site: Site) -> None:
    page = browse(app.person())
    page.goto("/monitors/new")
    page.get_by_label("Address").fill(site.url("/ok").removeprefix("http://"))
    page.get_by_role("button", name="Test run").click()
    expect(page.locator("#test-run")).to_contain_text("https:// did not respond.")
    expect(page.locator("#test-run")).to_contain_text("HTTP 200")
    expect(page.get_by_label("Address")).to_have_value(site.url("/ok"))
    axe(page)
    page.get_by_role("button", name="Create monitor").click()
    expect(page.get_by_role("heading", name="127.0.0.1", level=1)).to_be_visible()


def test_the_form_says_who_is_notified_of_what(app: Application, browse: Browse) -> None:
    person = app.person()
    with app.database():
        user = User.objects.get(email=person.email)
        project = ProjectFactory(owner=user, name="Shop")
        ChannelFactory(
            owner=user, name="On call", topics=["down"], monitors="project", scope_project_id=project.public_id
        )
        other = MonitorFactory(owner=user)
        ChannelFactory(
            owner=user, name="Pager", topics=["down", "slow"], monitors="chosen", monitor_ids=[other.public_id]
        )
    page = browse(person)
    page.goto("/monitors/new")
    page.get_by_label("Address").fill("https://shop.example/")
    sentence, pager = page.locator("#notified"), page.get_by_role("checkbox", name="Pager")
    expect(sentence).not_to_contain_text("Pager")
    pager.check()
    expect(sentence).to_contain_text("Pager is notified when it goes down or it is slow")
    expect(pager).to_be_checked()
    expect(pager).to_be_focused()
    axe(page)
    page.get_by_label("Project").select_option("Shop")
    expect(sentence).to_contain_text("On call is notified when it goes down")
    expect(page.get_by_role("checkbox", name="On call")).to_be_disabled()
    page.get_by_role("radio", name="Heartbeat").check()
    expect(sentence).not_to_contain_text("slow")
    axe(page)
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]
    assert fits(page)
    page.get_by_label("Name", exact=True).first.fill("Backup")
    page.get_by_role("button", name="Create monitor").click()
    expect(page.get_by_role("heading", name="Backup", level=1)).to_be_visible()
    expect(page.get_by_role("link", name="Pager")).to_be_visible()


def test_a_dns_monitor_is_made_without_scripts(app: Application, browse: Browse) -> None:
    page = browse(app.person(), java_script_enabled=False)
    page.goto("/monitors/new")
    page.get_by_role("radio", name="DNS").check()
    page.get_by_role("textbox", name="Domain name").fill("shop.example")
    page.get_by_label("Record type").select_option("MX")
    page.get_by_label("Expected records").fill("10 mail.shop.example\nnonsense")
    page.get_by_role("button", name="Create monitor").click()
    expect(page.get_by_role("alert")).to_contain_text("Line 2")
    expect(page.locator("#address")).to_have_text("dns:shop.example?type=MX")
    page.get_by_label("Expected records").fill("10 mail.shop.example")
    page.get_by_role("button", name="Create monitor").click()
    expect(page.get_by_role("heading", name="shop.example MX", level=1)).to_be_visible()


def test_a_project_with_an_invitation_and_a_token(app: Application, browse: Browse) -> None:
    page = browse(app.person(), viewport=PHONE)
    page.goto("/projects")
    axe(page)
    page.get_by_label("Name").fill("Shop")
    page.get_by_role("button", name="Create project").click()
    page.get_by_label("E-mail address").fill("new@example.com")
    page.get_by_role("button", name="Add").click()
    page.get_by_label("Change new@example.com").click()
    page.get_by_role("button", name="Make admin").click()
    expect(page.get_by_text("Admin; valid until")).to_be_visible()
    axe(page)
    assert fits(page)
    page.get_by_label("Change new@example.com").click()
    page.get_by_role("button", name="Withdraw invitation").click()
    page.get_by_role("dialog").get_by_role("button", name="Withdraw").click()
    expect(page.get_by_role("status").filter(has_text="Member removed")).to_be_visible()

    page.get_by_role("link", name="New token").click()
    page.get_by_label("Name").fill("Pipeline")
    expect(page.get_by_label("Lifetime")).to_be_hidden()
    axe(page)
    page.get_by_role("button", name="Create token").click()
    token = page.locator("#token").inner_text()
    assert token.startswith("svc_")
    axe(page)
    assert fits(page)
    page.reload()
    expect(page.get_by_text("was already created")).to_be_visible()
    assert token not in page.content()
    axe(page)
    page.get_by_role("button", name="Revoke Pipeline").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(page.get_by_role("heading", name="No API tokens")).to_be_visible()
