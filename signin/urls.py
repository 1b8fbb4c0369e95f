"""URLs of allauth's views that we use, with our throttles, and of our own views."""

from allauth.account import views as account
from allauth.mfa.base import views as mfa
from allauth.mfa.recovery_codes import views as recovery_codes
from django.urls import path, re_path

import core.api.converters  # noqa: F401  (registers <id:…>)
from core.addresses import client_network
from signin import operator_links, views
from signin.limits import by_person, limited, sign_in_limited
from signin.reauthentication import reauthenticate_by_mail, reauthenticated
from signin.social import views as social
from signin.social.views import by_password, leads_to_providers

sign_in = by_password(sign_in_limited(account.login), when_read=False)
sign_up = by_password(limited(account.signup, sign_up=client_network))
reset = by_password(limited(account.password_reset, sign_up=client_network))
reset_from_key = by_password(limited(account.password_reset_from_key, sign_in=client_network))

urlpatterns = [
    path("", leads_to_providers(views.account), name="account"),
    path("login/", leads_to_providers(sign_in), name="account_login"),
    path("logout/", account.logout, name="account_logout"),
    path("inactive/", account.account_inactive, name="account_inactive"),
    path("signup/", leads_to_providers(sign_up), name="account_signup"),
    re_path(r"^signup/(?P<key>[-:\w]+)/$", by_password(views.sign_up_link), name="account_signup_link"),
    path("confirm-email/", account.email_verification_sent, name="account_email_verification_sent"),
    re_path(r"^confirm-email/(?P<key>[-:\w]+)/$", views.confirm_email, name="account_confirm_email"),
    path("email/", limited(reauthenticated(account.email, when_read=False), invite=by_person), name="account_email"),
    path(
        "password/",
        by_password(limited(account.password_change, password=by_person)),
        name="account_change_password",
    ),
    path(
        "password/set/",
        by_password(reauthenticated(account.password_set, keep_form=False)),
        name="account_set_password",
    ),
    path("password/reset/", reset, name="account_reset_password"),
    path("password/reset/sent/", account.password_reset_done, name="account_reset_password_done"),
    re_path(
        r"^password/reset/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$",
        reset_from_key,
        name="account_reset_password_from_key",
    ),
    path("password/reset/done/", account.password_reset_from_key_done, name="account_reset_password_from_key_done"),
    path(
        "confirm/",
        leads_to_providers(by_password(limited(account.reauthenticate, password=by_person))),
        name="account_reauthenticate",
    ),
    path(
        "confirm/mail/",
        leads_to_providers(limited(reauthenticate_by_mail, password=by_person)),
        name="account_reauthenticate_by_mail",
    ),
    path("confirm/code/", leads_to_providers(mfa.reauthenticate), name="mfa_reauthenticate"),
    path("second-factor/", mfa.index, name="mfa_index"),
    path("second-factor/code/", mfa.authenticate, name="mfa_authenticate"),
    path("second-factor/app/", reauthenticated(views.ActivateApp.as_view()), name="mfa_activate_totp"),
    path("second-factor/app/remove/", reauthenticated(views.DeactivateApp.as_view()), name="mfa_deactivate_totp"),
    path(
        "second-factor/recovery-codes/",
        reauthenticated(recovery_codes.view_recovery_codes),
        name="mfa_view_recovery_codes",
    ),
    path(
        "second-factor/recovery-codes/new/",
        reauthenticated(views.NewRecoveryCodes.as_view()),
        name="mfa_generate_recovery_codes",
    ),
    path(
        "second-factor/recovery-codes/download/",
        reauthenticated(recovery_codes.download_recovery_codes),
        name="mfa_download_recovery_codes",
    ),
    path("session/", views.session, name="account_session"),
    path("sessions/", views.sessions, name="account_sessions"),
    path("sessions/end-others/", reauthenticated(views.end_other_sessions), name="account_end_other_sessions"),
    path("sessions/<id:session_id>/end/", reauthenticated(views.end_session), name="account_end_session"),
    path("log/", views.security_log, name="account_log"),
    path("export/", limited(reauthenticated(views.export), export=by_person), name="account_export"),
    path("delete/", reauthenticated(views.delete), name="account_delete"),
    re_path(
        r"^link/(?P<key>[-:\w]+)/$",
        limited(operator_links.sign_in, sign_in=client_network),
        name="account_sign_in_link",
    ),
    path("with/<id:provider>/", social.begin, name="social_begin"),
    path("with/<id:provider>/callback", social.callback, name="social_callback"),
    path("with/<id:provider>/remove/", reauthenticated(social.remove), name="social_remove"),
]
