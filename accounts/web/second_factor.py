"""allauth's pages that change the second factor, with entries in the audit log."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
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

    def form_valid(self, form: Any) -> HttpResponse:
        with transaction.atomic():
            codes = self._codes()
            response: HttpResponse = super().form_valid(form)  # type: ignore[misc]
            audit.services.record(self.action, actor=self._user())
            made_beside = self.action is Action.SECOND_FACTOR_ENABLED and self._codes() != codes
            if made_beside:
                audit.services.record(Action.RECOVERY_CODES_CREATED, actor=self._user())
        return response

    def _user(self) -> Any:
        return self.request.user

    def _codes(self) -> list[int]:
        rows = Authenticator.objects.filter(user=self._user(), type=Authenticator.Type.RECOVERY_CODES)
        return list(rows.values_list("pk", flat=True))


class ActivateView(_Recorded, ActivateTOTPView):  # type: ignore[misc]
    action = Action.SECOND_FACTOR_ENABLED


class DeactivateView(_Recorded, DeactivateTOTPView):  # type: ignore[misc]
    action = Action.SECOND_FACTOR_DISABLED


class NewRecoveryCodesView(_Recorded, GenerateRecoveryCodesView):  # type: ignore[misc]
    action = Action.RECOVERY_CODES_CREATED


activate = ActivateView.as_view()
deactivate = DeactivateView.as_view()
new_recovery_codes = NewRecoveryCodesView.as_view()
