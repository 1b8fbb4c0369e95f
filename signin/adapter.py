"""Adapters of allauth: it controls the flows, and changes of accounts use the same services as the API."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.authentication import get_authentication_records
from allauth.account.models import EmailAddress
from allauth.mfa.adapter import DefaultMFAAdapter
from django.conf import settings
from django.contrib import messages
from django.core.mail import EmailMessage
from django.db import IntegrityError, transaction
from django.http import HttpRequest
from django.urls import reverse

import accounts.services
import audit.services
from accounts.models import User
from accounts.services import AddressChange, record_address
from audit.actions import Action
from core.addresses import client_network, client_of
from core.clock import utc_now
from core.crypto import decrypt, encrypt
from core.mail import send_once
from core.throttles import seconds_to_wait
from projects.members import INVITED, accept_invitations, is_invited
from signin.signing_up import address_of, send_link

logger = logging.getLogger(__name__)

# Mails that anyone can trigger by typing an address. THROTTLES limits their number.
UNASKED = (
    "account/email/email_confirmation",
    "account/email/email_confirmation_signup",
    "account/email/password_reset_key",
    "account/email/account_already_exists",
    "account/email/unknown_account",
)
AWAITED = (*UNASKED, "accounts/email/code")

STAFF_SESSION = timedelta(hours=12)
DOOR = "web"  # the value in the audit log; the API has "api"


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return whether `SIGN_UP` lets everyone sign up, or the request came by the link of an open invitation."""
        if settings.OIDC_ONLY:
            return False
        invited = request.session.get("account_verified_email") or request.session.get(INVITED)
        return settings.SIGN_UP or (invited is not None and is_invited(invited, now=utc_now()))

    def get_login_stages(self) -> list[str]:
        return ["allauth.account.stages.EmailVerificationStage", "allauth.mfa.stages.AuthenticateStage"]

    def login(self, request: HttpRequest, user: User) -> None:
        """Sign in. All flows end here, after the address was confirmed and the second factor verified."""
        super().login(request, user)
        if user.staff_from_groups:
            # Only a sign-in asks the provider whether the person is still in a group of staff.
            request.session.set_expiry(utc_now() + STAFF_SESSION)
        ways = [str(way["method"]) for way in get_authentication_records(request, user)]
        details = {"door": DOOR, "ways": list(dict.fromkeys(ways))}
        audit.services.record(Action.SIGN_IN_SUCCEEDED, actor=user, details=details)
        accept_invitations(user, now=utc_now())

    def get_reauthentication_methods(self, user: Any) -> list[dict[str, Any]]:
        methods: list[dict[str, Any]] = super().get_reauthentication_methods(user)
        if settings.OIDC_ONLY:
            methods = [method for method in methods if method["id"] != "reauthenticate"]  # by password
            what = f"Sign in with {settings.OIDC_NAME} again"
        else:
            what = "Get a code by e-mail"
        if methods or not user.is_authenticated:
            return methods
        url = reverse("account_reauthenticate_by_mail")
        return [{"id": "mail", "description": what, "url": url}]

    def authentication_failed(self, request: HttpRequest, **credentials: Any) -> None:
        """Record a wrong password, entered to sign in or to reauthenticate."""
        tried = User.objects.filter(email=str(credentials.get("email", "")).strip().lower()).first()
        audit.services.record_failure(Action.SIGN_IN_FAILED, subject=tried, details={"door": DOOR})

    def set_password(self, user: User, password: str) -> None:
        accounts.services.set_password(user, password)

    def confirm_email(self, request: HttpRequest, email_address: EmailAddress) -> bool:
        before = email_address.user.email
        try:
            with transaction.atomic():
                confirmed = bool(super().confirm_email(request, email_address))
                user = User.objects.get(pk=email_address.user_id)
                if user.email != before:
                    record_address(AddressChange(user, before, clicked=True))
                return confirmed
        except IntegrityError:
            # Another account got the address after the change was requested.
            failed = "account/messages/email_confirmation_failed.txt"
            self.add_message(request, messages.ERROR, failed, {"email": email_address.email})
            return False

    def get_client_ip(self, request: HttpRequest) -> str:
        return client_of(request.META).address or "0.0.0.0"  # noqa: S104  (not known, as over a Unix socket)

    def get_password_change_redirect_url(self, request: HttpRequest) -> str:
        return reverse("account")

    def send_confirmation_mail(self, request: HttpRequest, emailconfirmation: Any, signup: bool) -> None:  # noqa: FBT001
        """Send the link for a change of address. For the unconfirmed address of a sign-up, send its link instead."""
        address = emailconfirmation.email_address
        if address.email == address.user.email:
            send_link(address.email)
        else:
            super().send_confirmation_mail(request, emailconfirmation, signup)

    def get_email_confirmation_url(self, request: HttpRequest, emailconfirmation: Any) -> str:
        return address_of("account_confirm_email", key=emailconfirmation.key)

    def get_reset_password_from_key_url(self, key: str) -> str:
        uidb36, _, rest = key.partition("-")
        return address_of("account_reset_password_from_key", uidb36=uidb36, key=rest)

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        if template_prefix in UNASKED and seconds_to_wait("account-mail", email.lower()) is not None:
            logger.info("too many mails to one address: a mail of %s was not sent", template_prefix)
            return
        links = {"account_url": address_of("account"), "reset_url": address_of("account_reset_password")}
        message = self.render_mail(template_prefix, email, {**links, **context, "email": email})
        # Send after the commit: a mail cannot be rolled back, and no row stays locked while a mail server is slow.
        transaction.on_commit(partial(self._send, message, template_prefix))

    def _send(self, message: EmailMessage, template_prefix: str) -> None:
        """Send a mail, without retries. If a user waits for it, show the failure, so that they can request another."""
        sender = client_network(self.request) if self.request else "the operator"
        if error := send_once(message, account=sender, stranger=True):
            logger.warning("a mail of %s could not be sent: %s", template_prefix, error)
            if template_prefix in AWAITED:
                self.add_message(
                    self.request, messages.ERROR, message="The message could not be sent. Try again later."
                )


class EncryptingAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Encrypt authenticator secrets and recovery codes, like all other secrets."""

    encrypt = staticmethod(encrypt)
    decrypt = staticmethod(decrypt)
