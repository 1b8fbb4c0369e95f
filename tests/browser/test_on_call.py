"""On-call schedules, escalation policies and their incidents in a browser."""

from __future__ import annotations

import re
from datetime import timedelta

from playwright.sync_api import Page, expect

from core.clock import to_ms, utc_now
from oncall.models import OnCallSchedule
from oncall.services import create_policy, create_schedule
from projects.access import Caller
from projects.members import add_member
from projects.services import create_project
from tests.browser.application import Application, Person
from tests.browser.axe import axe
from tests.browser.browsing import Browse
from tests.processes.waiting import until
from tests.site import Site

PATIENCE_SEC = 60


def team(app: Application) -> tuple[Person, Person, str]:
    """Return the owner and a member of a project, and its id."""
    anna, ben = app.person("anna"), app.person("ben")
    with app.database():
        now = utc_now()
        project = create_project(Caller(anna.user), name="Shop", now=now)
        add_member(Caller(anna.user), project.public_id, email=ben.user.email, role="member", now=now)
    return anna, ben, project.public_id


def schedule_of(app: Application, anna: Person, ben: Person, project_id: str) -> OnCallSchedule:
    """Both take turns of a day, from Monday of last week."""
    with app.database():
        now = utc_now()
        monday = (now - timedelta(days=now.weekday() + 7)).replace(hour=8, minute=0, second=0, microsecond=0)
        layer = {
            "user_ids": [anna.user.public_id, ben.user.public_id],
            "every": {"unit": "day", "count": 1},
            "starts_at": to_ms(monday),
        }
        body = {"name": "Backend", "project_id": project_id, "timezone": "Europe/Berlin", "layers": [layer]}
        return create_schedule(Caller(anna.user), body, now=now)


def overrides_of(app: Application, schedule: OnCallSchedule) -> list[dict[str, object]]:
    with app.database():
        found: list[dict[str, object]] = OnCallSchedule.objects.get(pk=schedule.pk).overrides
    return found


def test_a_schedule_is_created_and_edited(browse: Browse, app: Application) -> None:
    anna, ben, _ = team(app)
    page = browse(anna)
    page.goto("/on-call")
    axe(page)
    page.get_by_role("link", name="New schedule").first.click()
    expect(page.get_by_label("Time zone")).to_have_value("Europe/Berlin")
    first = page.get_by_label("Layer 1: person 1")
    expect(first.get_by_role("option")).to_have_count(2)
    page.get_by_label("Name").fill("Backend")
    page.get_by_label("Project").select_option(label="Shop")
    expect(first.get_by_role("option")).to_have_count(3)
    first.select_option(label=anna.user.email)
    page.get_by_label("Layer 1: person 2").select_option(label=ben.user.email)
    page.get_by_role("button", name="More people in layer 1").click()
    page.get_by_label("Layer 1: person 5").select_option(label=anna.user.email)
    expect(page.get_by_label("Layer 1: person 2")).to_have_value(ben.user.public_id)
    expect(page.get_by_role("button", name="More people in layer 1")).to_be_focused()
    page.get_by_text("Add another layer").click()
    page.get_by_role("button", name="More hours in layer 2").click()
    expect(page.get_by_label("Layer 2: from 2")).to_be_visible()
    axe(page)
    page.get_by_role("button", name="Create schedule").click()
    expect(page.get_by_text("Schedule created.")).to_be_visible()
    axe(page)
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Name").fill("")
    page.get_by_label("Name").press("Enter")
    expect(page.get_by_text("This field is required.")).to_be_visible()
    page.get_by_label("Name").fill("Frontend")
    page.get_by_label("Name").press("Enter")
    expect(page.get_by_role("heading", name="Frontend", level=1)).to_be_visible()
    page.get_by_role("link", name="Month").click()
    expect(page.locator(".band").nth(3)).to_be_visible()
    axe(page)


def drag(page: Page, start: float, end: float) -> None:
    """Select a part of the row of the result, from 0 to 1."""
    row = page.locator("svg[data-select]").first
    row.scroll_into_view_if_needed()
    box = row.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * start, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * (start + end) / 2, middle)
    page.mouse.move(box["x"] + box["width"] * end, middle)
    page.mouse.up()


def test_a_selected_span_is_overridden_and_shifts_are_swapped(browse: Browse, app: Application) -> None:
    anna, ben, project_id = team(app)
    schedule = schedule_of(app, anna, ben, project_id)
    page = browse(anna, timezone_id="America/St_Johns")
    page.goto(f"/on-call/schedules/{schedule.public_id}")
    page.get_by_role("link", name="Your time: America/St Johns").click()
    expect(page.get_by_role("link", name="Your time: America/St Johns")).to_have_attribute("aria-current", "true")
    page.get_by_role("link", name="Later").click()
    drag(page, 1 / 7, 3 / 14)
    starts, ends = page.get_by_label("From", exact=True).last, page.get_by_label("To", exact=True).last
    expect(starts).to_have_value(re.compile(r"T00:00$"))
    expect(ends).to_have_value(re.compile(r"T12:00$"))
    expect(page.get_by_label("Person")).to_be_focused()
    page.get_by_label("Person").select_option(label=ben.user.email)
    page.get_by_role("button", name="Add override").click()
    expect(page.get_by_text("Override added.")).to_be_visible()
    (override,) = overrides_of(app, schedule)
    assert override["user_id"] == ben.user.public_id
    assert int(str(override["ends_at"])) - int(str(override["starts_at"])) == 12 * 3_600_000
    # Midnight of Newfoundland is 3:30 in UTC, or 2:30 in summer.
    assert int(str(override["starts_at"])) // 60_000 % 60 == 30
    axe(page)
    # A click on a shift fills in its span.
    page.locator("svg[data-select] a[data-from]").nth(2).click()
    expect(starts).not_to_have_value("")
    page.get_by_role("button", name="Remove", exact=False).first.click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("Override removed.")).to_be_visible()
    assert overrides_of(app, schedule) == []
    page.get_by_label("Swap", exact=True).select_option(index=2)
    page.get_by_label("With", exact=True).select_option(index=3)
    page.get_by_role("button", name="Swap", exact=True).click()
    expect(page.get_by_text("Shifts swapped.")).to_be_visible()
    assert len(overrides_of(app, schedule)) == 2


def test_everything_is_possible_without_scripts(browse: Browse, app: Application) -> None:
    anna, ben, project_id = team(app)
    schedule = schedule_of(app, anna, ben, project_id)
    page = browse(anna, java_script_enabled=False)
    page.goto(f"/on-call/schedules/{schedule.public_id}")
    page.locator("#zone").select_option("Asia/Tokyo")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="Override").last.click()
    page.get_by_label("Person").select_option(label=ben.user.email)
    page.get_by_role("button", name="Add override").click()
    expect(page.get_by_text("Override added.")).to_be_visible()
    assert len(overrides_of(app, schedule)) == 1
    page.goto("/on-call/policies/new")
    page.get_by_label("Name").fill("Outages")
    page.get_by_label("Project").select_option(label="Shop")
    page.get_by_role("button", name="Show what this project has").click()
    page.get_by_label("Step 1: notifies 1").select_option(label="Whoever is on call in Backend")
    page.get_by_role("button", name="Another step").click()
    page.get_by_label("Step 3: notifies 1").select_option(label=anna.user.email)
    page.get_by_role("button", name="Create policy").click()
    expect(page.get_by_text("After 10 minutes:")).to_be_visible()


def test_a_policy_is_created_simulated_and_chosen(browse: Browse, app: Application) -> None:
    anna, ben, project_id = team(app)
    schedule_of(app, anna, ben, project_id)
    page = browse(anna)
    page.goto("/on-call/policies")
    axe(page)
    page.get_by_role("link", name="New policy").first.click()
    page.wait_for_url("**/on-call/policies/new")  # with its scripts, which look up what the project has
    page.get_by_label("Name").fill("Outages")
    page.get_by_label("Project").select_option(label="Shop")
    page.get_by_label("Step 1: notifies 1").select_option(label="Whoever is on call in Backend")
    page.get_by_label("Step 2: notifies 1").select_option(label=ben.user.email)
    page.get_by_label("Repeats").fill("1")
    axe(page)
    page.get_by_role("button", name="Create policy").click()
    expect(page.get_by_text("Policy created.")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="whoever is on call in Backend")).to_be_visible()
    expect(page.get_by_text("Repeated once.")).to_be_visible()
    at = page.get_by_label("If an outage is confirmed at")
    local = page.evaluate("new Date().toLocaleString('sv-SE').slice(0, 13).replace(' ', 'T')")
    expect(at).to_have_value(re.compile(rf"^{local[:10]}"))
    at.fill("2027-03-28T03:30")
    expect(page.get_by_label("Time zone")).to_have_value("Europe/Berlin")
    page.get_by_role("button", name="Simulate").click()
    rows = page.get_by_role("table").get_by_role("row")
    expect(rows).to_have_count(5)
    expect(rows.nth(1)).to_contain_text("Sun 28 Mar 2027, 03:30")
    expect(rows.nth(2)).to_contain_text("10 min after the outage")
    axe(page)
    page.goto(f"/projects/{project_id}")
    page.get_by_label("Escalation policy").select_option(label="Outages")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Escalation policy saved.")).to_be_visible()
    axe(page)
    page.goto(f"/monitors/new?project={project_id}")
    expect(page.locator("#notified")).to_contain_text("The escalation policy “Outages” decides who is notified")
    page.goto("/alert-channels/new?kind=webhook")
    expect(page.get_by_label("Time zone of the hours")).to_have_value("Europe/Berlin")
    page.goto("/on-call/shifts")
    page.get_by_role("button", name="Create the link of Backend").click()
    expect(page.locator("#calendar-url")).to_contain_text("/calendar/")
    axe(page)


def test_an_outage_is_acknowledged_taken_back_and_escalated(browse: Browse, app: Application) -> None:
    anna, ben, project_id = team(app)
    with app.database():
        users = [{"type": "user", "id": one.user.public_id} for one in (anna, ben)]
        steps = [{"after_min": number * 30, "targets": [user]} for number, user in enumerate(users)]
        body = {"name": "Outages", "project_id": project_id, "steps": steps}
        policy = create_policy(Caller(anna.user), body, now=utc_now())
    page = browse(anna)
    with Site() as site, anna.client() as client:
        given = {"url": site.url("/ok"), "name": "Checkout", "interval_sec": 1, "project_id": project_id}
        monitor = client.post("/monitors", given | {"escalation_policy_id": policy.public_id})
        site.stop()
        incidents = until(
            lambda: client.get(f"/incidents?monitor_id={monitor['id']}"), PATIENCE_SEC, "it is an incident"
        )
        page.goto(f"/incidents/{incidents[0]['id']}")
        expect(page.locator("#incident-state")).to_contain_text("Next: step 2", timeout=PATIENCE_SEC * 1000)
        expect(page.locator("#incident-state")).to_contain_text(ben.user.email)
        expect(page.locator("#incident-timeline")).to_contain_text("Step 1 of “Outages”")
        axe(page)
        page.get_by_role("button", name="Acknowledge").click()
        expect(page.locator("#incident-badge")).to_have_text("Acknowledged")
        expect(page.get_by_role("button", name="Escalate now")).to_be_hidden()
        page.get_by_role("button", name="Take back").click()
        page.get_by_role("dialog").get_by_role("button", name="Take back").click()
        expect(page.locator("#incident-badge")).to_have_text("Open")
        expect(page.locator("#incident-state")).to_contain_text("Next: step 2", timeout=PATIENCE_SEC * 1000)
        page.get_by_role("button", name="Escalate now").click()
        expect(page.locator("#incident-timeline")).to_contain_text("ran the next step")
        axe(page)
