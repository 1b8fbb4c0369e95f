"""Tests of pages, in Debian's Chromium against the whole application: web server, workers, scheduler, e-mails.

A test of a page:

    def test_a_monitor_is_made(browse: Browse, app: Application) -> None:
        page = browse(app.person())          # signed in; the fixture `page` is signed out
        page.goto("/monitors/new")
        page.get_by_label("Address").fill("https://example.com/")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_role("heading", name="example.com")).to_be_visible()
        axe(page)                            # no serious violation, in light colours or in dark ones

- `app` (application.py) is shared by all tests of a process, so each test creates its own users: `app.person("anna")`
  has a new account with PASSWORD. `person.client()` is the API with their session, to set up a test; monitors may have
  an interval of one second, and `tests.site.Site` is a target that can be switched off.
  `app.mail_to(address)` waits for an e-mail, and `app.link_in(mail)` is the link in it. `with app.database():` has
  models and services work on its rows.
- `page` and `browse(...)` (browsing.py) fail the test on a console error, an exception in a script, a violation of the
  Content-Security-Policy, and a request to another host. `browse.allow("status of 404")` where one is expected.
  Several people are several calls; `browse(person, viewport={"width": 390, "height": 844})` has a phone.
- `axe(page)` (axe.py) on every page, in each state that it has. `Keyboard(page)` (keyboard.py) has Tab and keys.
- Wait with `expect(...)`, which polls until the condition is met; never for a fixed time.

Without Chromium they are skipped, and fail where CI is set, as `.ci/run` does, which installs it. The tests of a file
share a browser (tests/scheduling.py): many in one file are cheaper than a file for each.

`make screenshots` (screenshots.py) takes pictures of pages for people to look at, filled by scene.py. A new page is a
line in PAGES there.

`make first-day` (first_day.py) measures a first user's day for docs/use/first-day.md, and test_first_day.py compares
that page with it.
"""
