"""Groups of the provider: sign-in, staff, and memberships that follow them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import run_checks
from django.urls import reverse
from pytest_django.fixtures import Settings
from social_django.models import UserSocialAuth

from accounts.models import User
from audit.actions import Action
from audit.models import Entry
from core.clock import utc_now
from core.errors import ReadOnly
from projects.access import Caller, owner_of
from projects.groups import follow_roles
from projects.members import MAX_MEMBERS, add_member, change_role, remove_member
from projects.models import Membership, Project
from tests.accounts.browser import Browser, signed_in
from tests.factories import ProjectFactory, UserFactory
from tests.helpers import run_concurrently
from tests.oidc.provider import EMAIL, Provider, sign_in
from tokens.models import ProjectToken
from tokens.services import create_token


@pytest.fixture
def project(provider: Provider, settings: Settings) -> Project:
    """A project whose roles groups give: `ops` that of an admin, `dev` that of a member."""
    made = ProjectFactory(owner=UserFactory())
    settings.OIDC_PROJECT_ROLES = (("ops", made.public_id, "admin"), ("dev", made.public_id, "member"))
    return made


def enter(provider: Provider, *groups: str, **claims: Any) -> Browser:
    provider.person(groups=list(groups), **claims)
    browser = Browser()
    sign_in(browser)
    return browser


def place_of(project: Project) -> tuple[str, bool] | None:
    return project.memberships.filter(user__email=EMAIL).values_list("role", "from_groups").first()


def test_memberships_follow_the_groups(provider: Provider, project: Project) -> None:
    enter(provider, "dev")
    assert place_of(project) == ("member", True)
    enter(provider, "dev", "ops", "other")
    assert place_of(project) == ("admin", True), "the higher role"
    token, _ = create_token(
        Caller(User.objects.get(email=EMAIL)), name="deploy", project_id=project.public_id, now=utc_now()
    )
    enter(provider)
    assert place_of(project) is None
    assert not ProjectToken.objects.filter(pk=token.pk).exists(), "as when a person removes the member"
    actions = list(
        Entry.objects.filter(project_id=project.pk, details__by="groups")
        .order_by("pk")
        .values_list("action", flat=True)
    )
    assert actions == [Action.MEMBER_ADDED, Action.MEMBER_UPDATED, Action.MEMBER_REMOVED]


def test_a_claim_that_is_missing_means_no_groups(provider: Provider, project: Project) -> None:
    enter(provider, "dev")
    provider.person()
    sign_in(Browser())
    assert place_of(project) is None


def test_without_the_setting_they_end(provider: Provider, project: Project, settings: Settings) -> None:
    enter(provider, "dev")
    settings.OIDC_PROJECT_ROLES = ()
    enter(provider, "dev")
    assert place_of(project) is None


def test_the_other_claim(provider: Provider, project: Project, settings: Settings) -> None:
    settings.OIDC_GROUPS_CLAIM = "roles"
    enter(provider, "ops")
    assert place_of(project) is None


def test_a_membership_made_by_hand_stays(provider: Provider, project: Project) -> None:
    owner = Caller(owner_of(project))
    UserFactory(email=EMAIL)
    add_member(owner, project.public_id, email=EMAIL, role="member", now=utc_now())
    enter(provider, "ops")
    assert place_of(project) == ("member", False)
    enter(provider)
    assert place_of(project) == ("member", False)


def test_an_invitation_comes_before_a_group(provider: Provider, project: Project) -> None:
    owner = Caller(owner_of(project))
    add_member(owner, project.public_id, email=EMAIL, role="admin", now=utc_now())
    enter(provider, "dev")
    assert place_of(project) == ("admin", False)
    assert project.memberships.count() == 2


def test_what_a_manager_changes_lasts_until_the_next_sign_in(provider: Provider, project: Project) -> None:
    owner = Caller(owner_of(project))
    enter(provider, "dev")
    member = project.memberships.get(user__email=EMAIL)
    change_role(owner, project.public_id, member.public_id, role="admin", now=utc_now())
    enter(provider, "dev")
    assert place_of(project) == ("member", True)
    remove_member(owner, project.public_id, member.public_id, now=utc_now())
    enter(provider, "dev")
    assert place_of(project) == ("member", True)


def test_the_owner_stays_the_owner(provider: Provider, settings: Settings) -> None:
    made = ProjectFactory(owner=UserFactory(email=EMAIL))
    settings.OIDC_PROJECT_ROLES = (("dev", made.public_id, "member"),)
    enter(provider, "dev")
    assert place_of(made) == ("owner", False)
    enter(provider)
    assert place_of(made) == ("owner", False)


@pytest.mark.parametrize("role", ["owner", "god"])
def test_a_wrong_setting_is_logged_and_prevents_no_sign_in(
    provider: Provider, project: Project, settings: Settings, caplog: pytest.LogCaptureFixture, role: str
) -> None:
    settings.OIDC_PROJECT_ROLES = (
        ("dev", project.public_id, role),
        ("dev", "prj_unknown", "member"),
        ("dev", project.public_id, "member"),
    )
    assert enter(provider, "dev").person() == EMAIL
    assert place_of(project) == ("member", True)
    assert f"names role {role!r}" in caplog.text
    assert "names project prj_unknown, which does not exist" in caplog.text


def test_a_full_project_prevents_no_sign_in(provider: Provider, project: Project) -> None:
    Membership.objects.bulk_create(
        Membership(
            project=project, role="member", invited_email=f"{n}@example.com", invitation_digest=b"%032d" % n,
            invited_until=utc_now() + timedelta(days=1),
        )
        for n in range(MAX_MEMBERS - 1)
    )  # fmt: skip
    assert enter(provider, "dev").person() == EMAIL
    assert place_of(project) is None


def test_two_tenants(provider: Provider, project: Project) -> None:
    theirs = ProjectFactory(owner=UserFactory())
    enter(provider, "dev", "ops")
    assert not theirs.memberships.filter(user__email=EMAIL).exists()
    assert project.memberships.count() == 2


def test_two_sign_ins_at_once(project: Project) -> None:
    user, now = UserFactory(email=EMAIL), utc_now()
    for role in ("admin", None, "member"):
        roles = [(project.public_id, role)] if role else []
        run_concurrently(*[lambda roles=roles: follow_roles(user, roles, now=now)] * 4)
        assert place_of(project) == ((role, True) if role else None)
    owner = owner_of(project)
    run_concurrently(
        lambda: follow_roles(user, [], now=now),
        lambda: add_member(Caller(owner), project.public_id, email=EMAIL, role="admin", now=now),
    )
    assert place_of(project) in (None, ("admin", False))


def test_only_members_of_some_groups_may_sign_in(provider: Provider, project: Project, settings: Settings) -> None:
    settings.OIDC_ALLOWED_GROUPS = ("dev", "pulse")
    provider.person(groups=["other"])
    browser = Browser()
    page = sign_in(browser)
    assert (page.status, browser.person()) == (403, None)
    assert "none of the groups" in page.text
    assert not User.objects.filter(email=EMAIL).exists()
    assert enter(provider, "dev").person() == EMAIL


def test_who_left_the_allowed_groups_loses_sessions_and_rights(
    provider: Provider, project: Project, settings: Settings
) -> None:
    settings.OIDC_ALLOWED_GROUPS = settings.OIDC_STAFF_GROUPS = ("dev",)
    before = enter(provider, "dev")
    provider.person(groups=["ops"])
    assert sign_in(Browser()).status == 403
    user = User.objects.get(email=EMAIL)
    assert (before.person(), place_of(project), user.is_staff) == (None, None, False)
    assert Entry.objects.filter(subject_id=user.pk, action=Action.SIGN_IN_FAILED).count() == 1


def test_who_left_them_and_confirms_is_signed_out(provider: Provider, project: Project, settings: Settings) -> None:
    settings.OIDC_ALLOWED_GROUPS = ("dev",)
    browser = enter(provider, "dev")
    provider.person(groups=[])
    assert sign_in(browser, again="1").status == 403
    assert browser.person() is None


def test_staff_follow_their_groups(provider: Provider, settings: Settings) -> None:
    settings.OIDC_STAFF_GROUPS = ("ops",)
    assert enter(provider, "dev").open("/system").status == 404
    staff = enter(provider, "ops")
    assert (staff.open("/admin/").status, staff.open("/system").status) == (200, 200)
    assert staff.client.session.get_expiry_date() <= utc_now() + timedelta(hours=12)
    enter(provider, "dev")
    assert staff.open("/system").status == 404, "also in a session of before"
    entries = Entry.objects.filter(action=Action.ACCOUNT_UPDATED).order_by("pk")
    assert [entry.details["is_staff"] for entry in entries] == [True, False]


def test_groups_make_viewers(provider: Provider, project: Project, settings: Settings) -> None:
    given = (("all", project.public_id, "viewer"), ("dev", project.public_id, "member"))
    settings.OIDC_PROJECT_ROLES = given
    assert not [found for found in run_checks() if found.id == "pulsekeeper.E007"]
    enter(provider, "all")
    assert place_of(project) == ("viewer", True)
    enter(provider, "all", "dev")
    assert place_of(project) == ("member", True), "the higher role"
    user = User.objects.get(email=EMAIL)
    token, _ = create_token(Caller(user), name="deploy", project_id=project.public_id, now=utc_now())
    enter(provider, "all")
    assert place_of(project) == ("viewer", True)
    assert ProjectToken.objects.filter(pk=token.pk).exists(), "it only reads from now on"
    with pytest.raises(ReadOnly):
        create_token(Caller(user), name="again", project_id=project.public_id, now=utc_now())


def test_staff_made_by_hand_stay(provider: Provider, settings: Settings) -> None:
    settings.OIDC_STAFF_GROUPS = ("ops",)
    UserFactory(email=EMAIL, is_staff=True)
    for groups in (["ops"], []):
        enter(provider, *groups)
        user = User.objects.get(email=EMAIL)
        assert (user.is_staff, user.is_superuser, user.staff_from_groups) == (True, False, False)


def test_unlinking_ends_what_came_from_groups(provider: Provider, project: Project, settings: Settings) -> None:
    settings.OIDC_STAFF_GROUPS = ("ops",)
    user = UserFactory(email=EMAIL)
    enter(provider, "ops")
    browser = signed_in(user)
    browser.prove()
    browser.send(reverse("social_remove", kwargs={"provider": "oidc"}))
    user.refresh_from_db()
    assert (place_of(project), user.is_staff, user.is_superuser) == (None, False, False)


def test_groups_that_are_no_list(provider: Provider, project: Project) -> None:
    provider.person(groups="dev")
    sign_in(Browser())
    assert place_of(project) == ("member", True)
    for wrong in (7, {"dev": True}, ["dev", 7], [["dev"]]):
        provider.person(groups=wrong)
        assert sign_in(Browser()).status == 502
    provider.person(groups=None)
    sign_in(Browser())
    assert place_of(project) is None


def test_staff_delete_an_identity_with_what_its_groups_gave(provider: Provider, project: Project) -> None:
    enter(provider, "dev")
    boss = signed_in(UserFactory(is_staff=True, is_superuser=True))
    link = UserSocialAuth.objects.get(provider="oidc")
    boss.send(reverse("admin:social_django_usersocialauth_delete", args=[link.pk]), post="yes")
    assert not UserSocialAuth.objects.exists()
    assert place_of(project) is None
    assert Entry.objects.filter(action=Action.SOCIAL_ACCOUNT_UNLINKED, actor_type=Entry.ActorType.STAFF).count() == 1
    enter(provider, "dev", sub="ada-created-again")
    assert place_of(project) == ("member", True)
    owner = signed_in(owner_of(project))
    assert ", from a group" in owner.open(f"/projects/{project.public_id}").text
