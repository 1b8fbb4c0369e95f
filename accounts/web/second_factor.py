"""allauth's pages that change the second factor, with entries in the audit log."""

from __future__ import annotations

from typing import Any

from allauth.mfa.recovery_codes.views import GenerateRecoveryCodesView
from allauth.mfa.totp.views import ActivateTOTPView, DeactivateTOTPView
from django.db import transaction
from django.http import HttpRequest, HttpResponse

import audit.services
from audit.actions import Action


class _Recorded:
    """Record the change in its transaction. allauth's mails and messages follow the commit."""

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


class Activate(_Recorded, ActivateTOTPView):  # type: ignore[misc]
    action = Action.SECOND_FACTOR_ENABLED


class Deactivate(_Recorded, DeactivateTOTPView):  # type: ignore[misc]
    action = Action.SECOND_FACTOR_DISABLED


class NewRecoveryCodes(_Recorded, GenerateRecoveryCodesView):  # type: ignore[misc]
    action = Action.RECOVERY_CODES_CREATED
