"""allauth's forms, adapted where they change accounts."""

from __future__ import annotations

from typing import Any, ClassVar

from allauth.account import forms as account_forms
from allauth.account.adapter import get_adapter
from allauth.core import context
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.mfa.adapter import get_adapter as get_mfa_adapter
from allauth.mfa.base import forms as mfa_forms
from allauth.mfa.totp.forms import ActivateTOTPForm
from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.text import capfirst

from accounts import second_factor
from accounts.models import User
from accounts.services import AddressTaken, change_password, hand_over, is_verified
from core.clock import utc_now
from core.errors import TooManyRequests, ValidationFailed
from core.throttles import count_request
from projects.members import is_invited
from signin import signing_up


class _Plain:
    """Our labels, no placeholders that repeat them, and new passwords asked for only once: a typo can be reset."""

    fields: dict[str, forms.Field]
    labels: ClassVar[dict[str, str]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields.pop("password2", None)
        labels = {"login": "E-mail address", "email": "E-mail address", **self.labels}
        for name, field in self.fields.items():
            field.widget.attrs.pop("placeholder", None)
            field.label = labels.get(name, field.label)
            if name in ("password", "oldpassword"):
                field.help_text = ""  # the form has a link to the password reset
            elif name == "password1":
                field.help_text = "At least 8 characters. Common passwords are refused."


class LoginForm(_Plain, account_forms.LoginForm):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["login"].initial = self.request.session.get("account_verified_email")


class SignupForm(_Plain, account_forms.SignupForm):  # type: ignore[misc]
    """Ask for the address and mail it a link. After that link or an invitation's, ask for the password as well."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.proven: str | None = context.request.session.get("account_verified_email")
        if self.proven is None:
            del self.fields["password1"]

    def validate_unique_email(self, value: str) -> str:
        """Accept addresses with an account: only the mail differs."""
        return value

    def clean_email(self) -> str:
        email = str(super().clean_email())
        if not settings.SIGN_UP and not is_invited(email, now=utc_now()):
            raise forms.ValidationError("Sign up with the address that your invitation was sent to.")
        return email

    def try_save(self, request: HttpRequest) -> tuple[User | None, HttpResponse | None]:
        email = self.cleaned_data["email"]
        if email != self.proven:
            signing_up.send_link(email)
            return None, redirect("account_email_verification_sent")
        try:
            user = signing_up.complete(email, self.cleaned_data["password1"])
        except AddressTaken:
            # The account was created in another tab. The address is proven, so this discloses nothing.
            messages.info(request, "You already have an account. Sign in.")
            return None, redirect("account_login")
        get_adapter().unstash_verified_email(request)
        return user, None


class AddEmailForm(_Plain, account_forms.AddEmailForm):  # type: ignore[misc]
    labels: ClassVar = {"email": "New e-mail address"}


class ChangePasswordForm(_Plain, account_forms.ChangePasswordForm):  # type: ignore[misc]
    labels: ClassVar = {"oldpassword": "Current password", "password1": "New password"}

    def save(self) -> None:
        current, new = self.cleaned_data["oldpassword"], self.cleaned_data["password1"]
        try:
            changed = change_password(self.user, current=current, new=new)
        except ValidationFailed as error:
            # A concurrent change came after the form was validated.
            self.add_error(None, capfirst(error.reason or ""))
            raise ImmediateHttpResponse(redirect("account_change_password")) from None
        self.user.password = changed.password  # keeps this browser signed in


class SetPasswordForm(_Plain, account_forms.SetPasswordForm):  # type: ignore[misc]
    pass


class ResetPasswordForm(_Plain, account_forms.ResetPasswordForm):  # type: ignore[misc]
    def clean_email(self) -> str:
        """Return the address. Only current addresses match: a pending new one may belong to someone else."""
        email: str = self.cleaned_data["email"].lower()
        self.users = list(User.objects.filter(email=email, is_active=True))
        return email


class ResetPasswordKeyForm(_Plain, account_forms.ResetPasswordKeyForm):  # type: ignore[misc]
    labels: ClassVar = {"password1": "New password"}

    def save(self) -> None:
        if is_verified(self.user):
            super().save()
        else:  # the link was sent there
            hand_over(self.user, self.cleaned_data["password1"])


class _Code:
    user: User
    cleaned_data: dict[str, Any]

    def clean_code(self) -> str:
        code = str(self.cleaned_data["code"])
        try:
            count_request("second-factor", f"user:{self.user.pk}")
        except TooManyRequests:
            raise forms.ValidationError("Too many attempts. Wait 15 minutes.") from None
        used = second_factor.use_code(self.user, code)
        if used is None:
            raise get_mfa_adapter().validation_error("incorrect_code")
        used.user = self.user
        self.authenticator = used
        return code


class PasswordAgainForm(_Plain, account_forms.ReauthenticateForm):  # type: ignore[misc]
    pass


class AuthenticateForm(_Plain, _Code, mfa_forms.AuthenticateForm):  # type: ignore[misc]
    pass


class ReauthenticateForm(_Plain, _Code, mfa_forms.ReauthenticateForm):  # type: ignore[misc]
    pass


class ActivateForm(_Plain, ActivateTOTPForm):  # type: ignore[misc]
    labels: ClassVar = {"code": "Code from the app"}
