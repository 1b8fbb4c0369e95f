import django_stubs_ext
from allauth.account.decorators import secure_admin_login
from csp.constants import NONE, SELF
from csp.decorators import csp
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import include, path
from django.views.generic import RedirectView, TemplateView

import alerts.views
import connectors.views
import core.api.converters  # noqa: F401  (registers <id:…>)
import oncall.calendar
import oncall.incident_views
import projects.views
from config.health import readyz
from config.openapi import serve_document
from config.system_status import health_page
from signin.account_export import ExportViewSet

# Allows ModelAdmin[...] at runtime.
django_stubs_ext.monkeypatch()
admin.autodiscover()
admin.site.site_header = admin.site.site_title = "Pulsekeeper"
admin.site.index_title = "Administration"


# A page that renders openapi.json. Swagger UI needs inline styles; requests to other hosts are refused.
docs = csp(
    {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF, "'unsafe-inline'"],
        "img-src": [SELF, "data:"],
        "connect-src": [SELF],
        "base-uri": [NONE],
        "form-action": [NONE],
        "frame-ancestors": [NONE],
    }
)(TemplateView.as_view(template_name="config/docs.html"))


# Staff use the regular pages for sign-in and passwords: Django's forms would bypass throttles, second factor and audit
# log.
@secure_admin_login  # type: ignore[untyped-decorator]
def admin_login(request: HttpRequest) -> HttpResponse:
    return redirect("admin:index")


API_APPS = (
    "tokens",
    "projects",
    "locations",
    "monitors",
    "connectors",
    "alerts",
    "incidents",
    "oncall",
    "statuspages",
    "manifests",
)

urlpatterns = [
    path("admin/login/", admin_login),
    path("admin/password_change/", RedirectView.as_view(pattern_name="account_change_password")),
    path("admin/password_change/done/", RedirectView.as_view(pattern_name="account")),
    path("admin/health/", RedirectView.as_view(pattern_name="system_health")),
    path("admin/", admin.site.urls),
    path("system", health_page, name="system_health"),
    path("readyz", readyz),
    path("openapi.json", serve_document, name="openapi"),
    path("docs", docs),
    path("", include("dashboard.urls")),
    path("account/", include("signin.urls")),
    path("invitations/<id:token>", projects.views.invitation),
    path("alert-channels/confirm/<id:token>", alerts.views.confirm_address),
    path("a/<id:key>", oncall.incident_views.acknowledge_page),
    path("calendar/<id:token>.ics", oncall.calendar.calendar_feed),
    path("connectors/<id:provider>/callback", connectors.views.callback),
    path("connectors/<id:provider>/undo", connectors.views.undo),
    *(path("v1/", include(f"{app}.urls")) for app in API_APPS),
    path("v1/account/export", ExportViewSet.as_view({"get": "retrieve"})),
]

handler400 = "config.errors.bad_request"
handler404 = "config.errors.not_found"
handler500 = "config.errors.server_error"
