"""Reauthentication before sensitive actions, in case the session was stolen.

allauth asks for the password or a code of the second factor, but accepts accounts with neither. These confirm with a
mailed code, or by signing in again with a linked provider.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from hmac import compare_digest
from typing import Any

from allauth.account import app_settings
from allauth.account.adapter import get_adapter
from allauth.account.authentication import get_authentication_records
from allauth.account.internal.flows.login import record_authentication
from allauth.account.internal.flows.reauthentication import resume_request
from allauth.account.views import BaseReauthenticateView
from allauth.core import context
from allauth.core.exceptions import ReauthenticationRequired
from django import forms
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.crypto import get_random_string, salted_hmac

from accounts.models import User
from signin.social.openid import OpenID
from signin.social.pipeline import linked_providers

View = Callable[..., Any]

CODE_LIFETIME_SEC = 600
MOST_TRIES = 5
_PENDING = "reauthentication_code"  # session key: digest, time and attempts of the mailed code


def reauthenticated(view: View, *, keep_form: bool = True, when_read: bool = True) -> View:
    """Require recent authentication for the view.

    `keep_form`: submit the form again afterwards. It is stored in the session until then, so not for passwords.
    `when_read`: also require it for GET.
    """

    @wraps(view)
    def asked(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        applies = request.user.is_authenticated and (when_read or request.method == "POST")
        if applies and not is_recent(request):
            if request.method == "POST" and not keep_form:
                return redirect(request.path)
            raise ReauthenticationRequired
        return view(request, *args, **kwargs)

    return asked


def is_recent(request: HttpRequest) -> bool:
    """Return whether this session has authenticated again within REAUTHENTICATION_TIMEOUT."""
    records = get_authentication_records(request, request.user)
    times = [float(record["at"]) for record in records if record.get("reauthenticated")]
    return bool(times) and time.time() - times[-1] < app_settings.REAUTHENTICATION_TIMEOUT


def send_code(request: HttpRequest, user: User) -> None:
    """Mail a code to the account's address and invalidate earlier ones."""
    code = get_random_string(8, "0123456789")
    request.session[_PENDING] = {"digest": _digest(user, code), "at": time.time(), "tries": 0}
    get_adapter().send_mail("accounts/email/code", user.email, {"code": f"{code[:4]} {code[4:]}"})


def use_code(request: HttpRequest, user: User, code: str) -> bool:
    """Return whether this is the code mailed for this session, and use it up."""
    pending = request.session.get(_PENDING)
    if pending is None or time.time() - pending["at"] > CODE_LIFETIME_SEC or pending["tries"] >= MOST_TRIES:
        return False
    digits = "".join(filter(str.isdigit, code))
    if not compare_digest(pending["digest"], _digest(user, digits)):
        request.session[_PENDING] = pending | {"tries": pending["tries"] + 1}
        return False
    del request.session[_PENDING]
    record_authentication(request, user, "code", email=user.email, reauthenticated=True)
    return True


def _digest(user: User, code: str) -> str:
    """Return a digest of the code and the address: a code sent to one address proves nothing about another."""
    text = f"{user.pk} {user.email} {code}"
    return salted_hmac("pulsekeeper.reauthentication", text, algorithm="sha256").hexdigest()


class CodeForm(forms.Form):
    code = forms.CharField(
        label="Code",
        max_length=20,
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "inputmode": "numeric"}),
    )

    def clean_code(self) -> str:
        code = str(self.cleaned_data["code"])
        if not use_code(context.request, context.request.user, code):
            raise forms.ValidationError("Incorrect code, or it has expired. Check it, or send another one.")
        return code


class MailedCodeView(BaseReauthenticateView):  # type: ignore[misc]
    """The form for the mailed code. allauth's view then resumes the suspended request."""

    form_class = CodeForm
    template_name = "accounts/reauthenticate.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if is_recent(request):  # signed in again with a provider
            return resume_request(request) or redirect("account")
        response: HttpResponse = super().get(request, *args, **kwargs)
        return response

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not _takes_code(request):
            return redirect(self.passthrough_next_url(request.path))
        if "send" in request.POST:
            assert isinstance(request.user, User)
            send_code(request, request.user)
            return redirect(self.passthrough_next_url(request.path))
        response: HttpResponse = super().post(request, *args, **kwargs)
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {
            **super().get_context_data(**kwargs),
            "sent": _PENDING in self.request.session,
            "by_code": _takes_code(self.request),
        }


def _takes_code(request: HttpRequest) -> bool:
    """Return whether a mailed code may confirm: under OIDC_ONLY, only for accounts without an identity to sign in with.

    These signed in by a link of the operator.
    """
    assert isinstance(request.user, User)
    return not (settings.OIDC_ONLY and OpenID.name in linked_providers(request.user))


reauthenticate_by_mail = login_required(MailedCodeView.as_view())
