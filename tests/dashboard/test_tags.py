"""Tags on the dashboard: the form, chips, and the filter of the overview."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from django.test import Client

from accounts.models import User
from core.templatetags.pulsekeeper import HUES, hue
from dashboard.monitors import tags
from dashboard.monitors.listing import Listing, tally
from incidents.models import MaintenanceWindow
from monitors.filters import STANDINGS
from monitors.models import Monitor
from monitors.services import create_monitor, update_monitor
from projects.access import Caller
from statuspages.models import StatusPage
from tests.dashboard.test_monitor_pages import created, errors_in, typed
from tests.factories import ChannelFactory, MonitorFactory, ProjectFactory, UserFactory
from tests.helpers import NOON


def tagged(user: User, *tags: str, **given: object) -> Monitor:
    return create_monitor(Caller(user), {"url": "http://shop.example/", "tags": list(tags), **given}, now=NOON)


def options_in(html: str) -> list[str]:
    (names,) = re.findall(r'<datalist id="tag-names">(.*?)</datalist>', html, re.DOTALL)
    return re.findall(r'<option value="([^"]*)">', names)


def test_the_form_takes_tags_separated_by_commas(web: Client, user: User) -> None:
    answer = web.post("/monitors/new", typed(type="heartbeat", tags=" Web , , Größe &co,db,"))
    assert errors_in(answer.content.decode()) == []
    monitor = created(user)
    assert monitor.tags == ["Web", "Größe &co", "db"]
    path = f"/monitors/{monitor.public_id}/edit"
    assert 'value="Web, Größe &amp;co, db"' in web.get(path).content.decode()
    web.post(path, typed(type="heartbeat", tags="db, Web"))
    monitor.refresh_from_db()
    assert (monitor.tags, monitor.tag_keys) == (["db", "Web"], ["db", "web"])
    web.post(path, typed(type="heartbeat", tags=""))
    monitor.refresh_from_db()
    assert monitor.tags == []


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        (f"web, {'a' * 41}", "cannot have more than 40 characters."),
        ("web, WEB", "more than once"),
        (", ".join(map(str, range(21))), "no more than 20"),
    ],
)
def test_the_form_says_which_tag_is_wrong(web: Client, tags: str, said: str) -> None:
    html = web.post("/monitors/new", typed(type="heartbeat", tags=tags)).content.decode()
    assert [said in error for error in errors_in(html)] == [True], errors_in(html)
    assert 'href="#id_tags"' in html


def test_the_form_completes_the_tags_of_the_account(web: Client, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    tagged(user, "web", "B&B", "db")
    tagged(user, "DB", "web")
    tagged(UserFactory(), "foreign")
    assert options_in(web.get("/monitors/new").content.decode()) == ["B&amp;B", "DB", "web"]
    monkeypatch.setattr(tags, "MAX_OFFERED", 2)
    assert options_in(web.get("/monitors/new").content.decode()) == ["DB", "web"]


def test_a_copy_has_the_tags(web: Client, user: User) -> None:
    monitor = tagged(user, "web", "db")
    assert 'value="web, db"' in web.get(f"/monitors/new?from={monitor.public_id}").content.decode()


def names_in(html: str) -> list[str]:
    return re.findall(r'<a class="name truncate" href="[^"]*">([^<]*)</a>', html)


def chips_in(html: str) -> list[str]:
    return re.findall(r'<a class="tag" data-hue="\d+" href="([^"]*)">', html)


def test_the_overview_shows_and_filters_tags(web: Client, user: User) -> None:
    tagged(user, "Web", "<b>&", name="a", type="heartbeat")
    tagged(user, "web", "db", name="b", type="heartbeat")
    tagged(user, name="c", type="heartbeat")
    html = web.get("/monitors").content.decode()
    assert names_in(html) == ["a", "b", "c"]
    assert ">&lt;b&gt;&amp;</a>" in html
    assert chips_in(html) == [
        "/monitors?tag=Web", "/monitors?tag=%3Cb%3E%26", "/monitors?tag=web", "/monitors?tag=db",
    ]  # fmt: skip
    assert names_in(web.get("/monitors?tag=%3Cb%3E%26").content.decode()) == ["a"]
    assert names_in(web.get("/monitors?tag=WEB").content.decode()) == ["a", "b"]
    html = web.get("/monitors?tag=web&tag=DB&state=pending").content.decode()
    assert names_in(html) == ["b"]
    assert 'href="/monitors?state=pending&amp;tag=DB" aria-label="Remove the filter web"' in html
    assert 'href="/monitors?tag=web&amp;tag=DB"' in html, "the counts keep the filter"
    assert '<input type="hidden" name="tag" value="DB">' in html, "so do actions on all that match"
    assert names_in(web.get("/monitors?tag=web&tag=db&search=zzz").content.decode()) == []
    assert "No matching monitors" in web.get("/monitors?tag=none").content.decode()


@pytest.mark.parametrize("query", ["tag=", "tag=a,b", "tag=a%00b", f"tag={'a' * 41}", "tag=%20"])
def test_the_overview_ignores_what_is_no_tag(web: Client, user: User, query: str) -> None:
    tagged(user, "web", name="a", type="heartbeat")
    assert names_in(web.get(f"/monitors?{query}").content.decode()) == ["a"]


def test_an_action_on_all_that_match_leaves_the_others_alone(web: Client, user: User) -> None:
    tagged(user, "web", "db", name="a", type="heartbeat")
    tagged(user, "web", name="b", type="heartbeat")
    web.post("/monitors/actions", {"action": "pause", "all": "1", "tag": ["web", "DB"]})
    assert list(Monitor.objects.filter(enabled=False).values_list("name", flat=True)) == ["a"]


def test_the_menu_lists_the_tags_and_keeps_the_chosen_ones(web: Client, user: User) -> None:
    assert "No monitor has tags." in web.get("/monitors/tags").content.decode()
    tagged(user, "web", "db")
    tagged(user, "web", "B&B")
    tagged(UserFactory(), "foreign")
    html = web.get("/monitors/tags?tag=WEB").content.decode()
    boxes = re.findall(r'name="tag" value="([^"]*)"( checked)?>', html)
    assert boxes == [("WEB", " checked"), ("B&amp;B", ""), ("db", "")]


def test_a_changed_tag_is_a_change_of_the_list(user: User) -> None:
    monitor, caller = tagged(user, "web"), Caller(user)
    before = tally(caller, Listing(), now=NOON)
    update_monitor(caller, monitor.public_id, {"tags": ["db"]}, now=NOON)
    after = tally(caller, Listing(), now=NOON)
    assert (before.order == after.order, before.content == after.content) == (True, False)
    assert sum(tally(caller, Listing(tag=("DB",)), now=NOON).counts[one] for one in STANDINGS) == 1


def test_a_row_shows_the_first_tags_and_the_page_all(web: Client, user: User) -> None:
    monitor = tagged(user, *(f"tag{number}" for number in range(8)), type="heartbeat")
    html = web.get("/monitors").content.decode()
    assert len(chips_in(html)) == tags.MAX_CHIPS
    assert '<span class="muted small" title="tag6, tag7">+2</span>' in html
    page = web.get(f"/monitors/{monitor.public_id}").content.decode()
    assert len(chips_in(page)) == 8


def _luminance(lightness: float, chroma: float, hue_degrees: float) -> float:
    """Return the relative luminance of an oklch colour as WCAG defines it, cut to the gamut of sRGB."""
    a, b = chroma * math.cos(math.radians(hue_degrees)), chroma * math.sin(math.radians(hue_degrees))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    red, green, blue = (min(max(each, 0.0), 1.0) for each in linear)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_hue_is_readable_in_both_themes() -> None:
    css = Path("static/pulsekeeper/base.css").read_text()
    (rule,) = re.findall(r"^\.tag \{(.*?)^\}", css, re.DOTALL | re.MULTILINE)
    colour = r"oklch\(([\d.]+) ([\d.]+) var\(--hue\)\)"
    backgrounds, texts = (
        [(float(lightness), float(chroma)) for lightness, chroma in re.findall(colour, line)]
        for name in ("background", "color")
        for line in re.findall(rf"^  {name}: (.*);$", rule, re.MULTILINE)
    )
    hues = dict.fromkeys([0]) | {int(degrees): None for degrees in re.findall(r"--hue: (\d+);", css)}
    assert len(hues) == len(backgrounds) * HUES / 2 == HUES
    for degrees in hues:
        for background, text in zip(backgrounds, texts, strict=True):
            low, high = sorted((_luminance(*background, degrees), _luminance(*text, degrees)))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (degrees, background, text)


def test_a_colour_follows_from_the_name_without_case() -> None:
    assert hue("Produktion") == hue("PRODUKTION")
    assert len({hue(f"tag {number}") for number in range(200)}) == HUES


def test_forms_of_channels_and_windows_select_by_tags(web: Client, user: User) -> None:
    chosen = MonitorFactory(owner=user)
    channel = ChannelFactory(owner=user, kind="webhook", monitors="chosen", monitor_ids=[chosen.public_id])
    path = f"/alert-channels/{channel.public_id}/edit"
    fields = {"name": "Hook", "enabled": "on", "remind_every_hours": 24, "monitors": "chosen"}
    sent = fields | {"monitor_ids": [chosen.public_id], "monitor_tags": " web, DB,"}
    assert web.post(path, sent).status_code == 302
    channel.refresh_from_db()
    assert (channel.monitor_tags, list(channel.monitors.all())) == (["web", "DB"], [chosen])
    assert 'value="web, DB"' in web.get(path).content.decode()
    assert web.post(path, fields | {"monitor_ids": [], "monitor_tags": "x"}).status_code == 302
    assert "tag x" in web.get("/alert-channels").content.decode()
    assert "more than once" in web.post(path, fields | {"monitor_tags": "a, A"}).content.decode()
    assert "Select at least one monitor or tag." in web.post(path, fields).content.decode()
    window = {
        "name": "Update", "starts_at": "2030-01-01T00:00", "ends_at": "2030-01-01T01:00", "time_zone": "UTC",
        "repeats": "once", "monitors": "chosen", "monitor_tags": "web", "form_key": "x",
    }  # fmt: skip
    assert web.post("/maintenance/new", window).status_code == 302
    assert MaintenanceWindow.objects.get().monitor_tags == ["web"]
    assert "tag web" in web.get("/maintenance").content.decode()


def test_the_form_says_who_is_notified_because_of_a_tag(web: Client, user: User) -> None:
    project = ProjectFactory(owner=user)
    ChannelFactory(owner=user, name="Ops", monitors="chosen", monitor_tags=["Web"])
    ChannelFactory(owner=user, project=project, name="Shop", monitors="chosen", monitor_tags=["web"])
    path = f"/monitors/notified?type=http&tags=db,+WEB&project_id={project.public_id}"
    html = web.get(path).content.decode()
    assert "Ops and Shop are notified" in html or "Shop are notified" in html
    assert html.count("by its tags") == 2
    assert "by its tags" not in web.get("/monitors/notified?type=http&tags=db").content.decode()
    assert web.get("/monitors/notified?type=http&tags=web").content.decode().count("by its tags") == 1


def test_the_form_of_a_status_page_keeps_and_changes_tags(web: Client, user: User) -> None:
    monitor = MonitorFactory(owner=user)
    made = {"name": "P", "theme": "auto", "add_to": "Web", "add_tags": "web, db", "form_key": "x", "published": "on"}
    assert web.post("/status-pages/new", made).status_code == 302
    page = StatusPage.objects.get()
    path = f"/status-pages/{page.public_id}/edit"
    assert 'name="tags-0" value="web, db"' in web.get(path).content.decode()
    fields = {"name": "P", "slug": page.slug, "theme": "auto", "published": "on"}
    sent = fields | {"tags-0": "web, db", "add_to": "Web", "add": [monitor.public_id], "add_tags": "x"}
    assert web.post(path, sent).status_code == 302
    (group,) = page.groups.all()
    assert (group.name, group.monitor_tags, group.monitors.count()) == ("Web", ["web", "db", "x"], 1)
    assert "more than once" in web.post(path, fields | {"tags-0": "a, A"}).content.decode()
    assert web.post(path, fields | {"tags-0": ""}).status_code == 302
    (group,) = page.groups.all()
    assert (group.monitor_tags, group.monitors.count()) == ([], 1)
