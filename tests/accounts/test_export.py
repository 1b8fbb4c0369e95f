"""The page that exports the data of an account."""

from __future__ import annotations

import json

from django.urls import reverse

from accounts.models import User
from tests.accounts.browser import Browser, signed_in
from tests.audit.reading import last
from tests.helpers import PASSWORD


def test_the_file_is_only_for_its_confirmed_owner(user: User) -> None:
    browser, path = signed_in(user), reverse("account_export")
    assert path in browser.open(reverse("account")).text
    assert browser.open(path).heading == "Confirm it's you"
    page = browser.send(f"{reverse('account_reauthenticate')}?next={path}", password=PASSWORD)
    assert (page.path, "subscribers" in page.text) == (path, True)
    answer = browser.client.post(path, {"csrfmiddlewaretoken": browser.token()})
    found = json.loads(answer.getvalue())
    assert (found["account"]["email"], found["complete"]) == (user.email, True)
    assert found["browsers"][0]["address"] == "127.0.0.1"
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert (last().action, last().actor_type) == ("account.exported", "user")
    assert signed_in(user).send(path).heading == "Confirm it's you", "no file for a session that was stolen"
    assert Browser().open(path).heading == "Sign in"
