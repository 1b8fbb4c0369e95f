from playwright.sync_api import Page, expect
from tests.browser.browsing import Browse
from tests.browser.application import Application

def test_x(page: Page, app: Application, browse: Browse) -> None:
    for path in ("/account/signup/","/account/login/"):
        page.goto(path); print(path, page.locator("body").aria_snapshot())
    p = browse(app.person())
    for path in ("/monitors","/monitors/new","/monitors/new?type=http","/maintenance/new","/alert-channels/new", "/account/"):
        p.goto(path); print(path, p.locator("main").aria_snapshot())
    assert 0
