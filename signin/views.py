"""Pages of the signed-in account: overview, second factor, sessions, security log, export and deletion."""

from __future__ import annotations

from typing import Any

from allauth.account import views as allauth_views
from allauth.account.adapter import get_adapter
from allauth.account.models import EmailAddress, get_emailconfirmation_model
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.views import GenerateRecoveryCodesView
from allauth.mfa.totp.views import ActivateTOTPView, DeactivateTOTPView
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.middleware.csrf import get_token
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods

import accounts.services
import audit.services
import projects.log
import tokens.services
from accounts.export import NOT_INCLUDED
from accounts.models import Plan, User
from audit.actions import Action
from dashboard.forms import PageForm
from dashboard.pages import PageRequest, action, done, page, read_only
from dashboard.security_log import log_context
from signin import signing_up
from signin.account_export import download
from signin.social.backends import BACKENDS, configured
from signin.social.pipeline import linked_providers
from signin.web_sessions import end_web_session, end_web_sessions, list_web_sessions


def _render(request: PageRequest, template: str, **context: Any) -> HttpResponse:
    return render(request, f"accounts/{template}.html", {"section": "account", **context})


@read_only
def account(request: PageRequest) -> HttpResponse:
    user = request.caller.user
    factors = {row.type: row for row in Authenticator.objects.filter(user=user)}
    codes = factors.get(Authenticator.Type.RECOVERY_CODES)
    linked = linked_providers(user)
    return _render(
        request,
        "account",
        user=user,
        used=user.monitors.count(),
        mentions_plan=Plan.is_mentioned(),
        new_address=EmailAddress.objects.filter(user=user, verified=False).last(),
        passwords=not settings.OIDC_ONLY,
        has_password=user.has_usable_password(),
        second_factor=factors.get(Authenticator.Type.TOTP),
        codes_left=0 if codes is None else len(codes.wrap().get_unused_codes()),
        # Include providers that are no longer configured: they can be unlinked.
        providers=[
            {"name": name, "title": backend.title, "linked": name in linked}
            for name, backend in BACKENDS.items()
            if name in linked or backend in configured()
        ],
    )


@require_GET
def sign_up_link(request: HttpRequest, key: str) -> HttpResponse:
    """Open the link of a sign-up. This changes nothing yet, because mail scanners open links."""
    email = signing_up.read_link(key)
    if email is None:
        reason = "It has expired. Sign up again to get another one."
        return render(request, "problem.html", {"title": "This link is no longer valid", "reason": reason}, status=404)
    return _choose_password(request, email)


def confirm_email(request: HttpRequest, key: str) -> HttpResponseBase:
    """Confirm a change of address.

    For the address that an unconfirmed account signs in with, choose a password: another person may have set the stored
    one.
    """
    confirmation = get_emailconfirmation_model().from_key(key)
    address = None if confirmation is None else confirmation.email_address
    if address is not None and address.email == address.user.email:
        return _choose_password(request, address.email)
    response: HttpResponseBase = allauth_views.confirm_email(request, key=key)
    return response


def _choose_password(request: HttpRequest, email: str) -> HttpResponse:
    """Redirect the proven owner of the address to the sign-up page."""
    if request.user.is_authenticated:
        reason = f"This link is for {email}. Sign out, and open it again to use it."
        return render(request, "problem.html", {"title": "You are signed in", "reason": reason})
    get_adapter(request).stash_verified_email(request, email)
    if accounts.services.verified_account(email):
        messages.info(request, "You already have an account. Sign in.")
        return redirect("account_login")
    return redirect("account_signup")


@read_only
def sessions(request: PageRequest) -> HttpResponse:
    browsers = list_web_sessions(request.caller.user, now=request.now)
    api_sessions = tokens.services.list_sessions(request.caller, now=request.now).order_by("-pk")
    return _render(request, "sessions", browsers=browsers, api_sessions=api_sessions)


@read_only
def session(request: PageRequest) -> HttpResponse:
    """Return the signed-in account and the session's CSRF token. Scripts ask before they send a form."""
    return JsonResponse({"user": request.caller.user.public_id, "csrf_token": get_token(request)})


@action
def end_session(request: PageRequest, session_id: str) -> HttpResponse:
    """End a session of the API (`sin_…`) or of a browser."""
    if session_id.startswith("sin_"):
        tokens.services.end_session(request.caller, session_id)
    elif not (session_id.isascii() and session_id.isdigit() and end_web_session(request.caller.user, int(session_id))):
        raise Http404
    return done(request, "Session ended.", "account_sessions")


@action
def end_other_sessions(request: PageRequest) -> HttpResponse:
    end_web_sessions(request.caller.user, but=request.session.session_key)
    tokens.services.end_sessions(request.caller.user)
    return done(request, "Signed out everywhere else.", "account_sessions")


@read_only
def security_log(request: PageRequest) -> HttpResponse:
    entries = projects.log.of_account(request.caller)
    return _render(request, "log", **log_context(request, entries))


@require_http_methods(["GET", "POST"])
@page
def export(request: PageRequest) -> HttpResponseBase:
    """Show what the export contains; a POST downloads the file."""
    if request.method == "POST":
        return download(request.caller.user)
    return _render(request, "export", not_included=NOT_INCLUDED.values())


class DeletionForm(PageForm):
    email = forms.CharField(
        label="Your e-mail address",
        max_length=254,
        help_text="Enter it to confirm the deletion.",
        widget=forms.EmailInput(attrs={"autocomplete": "off"}),
    )

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._user = user

    def clean_email(self) -> str:
        email = str(self.cleaned_data["email"]).strip().lower()
        if email != self._user.email:
            raise forms.ValidationError("This is not the address of your account.")
        return email


@require_http_methods(["GET", "POST"])
@page
def delete(request: PageRequest) -> HttpResponse:
    user = request.caller.user
    form = DeletionForm(request.POST or None, user=user)
    form.save(request, lambda: accounts.services.delete_account(user))
    if form.is_valid():
        logout(request)
        return done(request, "Your account was deleted.", "account_login")
    return _render(request, "delete", form=form, used=user.monitors.count())


class _Recorded:
    """Record the change of the second factor in its transaction. allauth's mails and messages follow the commit."""

    action: Action
    request: HttpRequest
    did_generate_recovery_codes = False

    def form_valid(self, form: Any) -> HttpResponse:
        user: Any = self.request.user
        with transaction.atomic():
            response: HttpResponse = super().form_valid(form)  # type: ignore[misc]
            audit.services.record(self.action, actor=user)
            if self.did_generate_recovery_codes:
                audit.services.record(Action.RECOVERY_CODES_CREATED, actor=user)
        return response


class ActivateApp(_Recorded, ActivateTOTPView):  # type: ignore[misc]
    action = Action.SECOND_FACTOR_ENABLED


class DeactivateApp(_Recorded, DeactivateTOTPView):  # type: ignore[misc]
    action = Action.SECOND_FACTOR_DISABLED


class NewRecoveryCodes(_Recorded, GenerateRecoveryCodesView):  # type: ignore[misc]
    action = Action.RECOVERY_CODES_CREATED
