import django_stubs_ext
from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework.permissions import AllowAny

import alerts.views
import connectors.views
import core.api.converters  # noqa: F401  (registers <id:…>)
import projects.views
import tokens.schema  # noqa: F401  (drf-spectacular finds extensions once they are imported; workers have no use for it)
from config.docs import docs
from config.health import healthz, readyz
from config.health_page import health
from config.metrics import metrics
from core.api.views import UnknownRoute

# Lets ModelAdmin[...] be written where it is used.
django_stubs_ext.monkeypatch()
admin.autodiscover()
admin.site.site_header = admin.site.site_title = "Pulsekeeper"
admin.site.index_title = "Administration"
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]

urlpatterns = [
    path("admin/health/", admin.site.admin_view(health), name="admin-health"),
    path("admin/", admin.site.urls),
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", metrics),
    path(
        "openapi.json",
        SpectacularJSONAPIView.as_view(authentication_classes=(), permission_classes=(AllowAny,)),
        name="openapi",
    ),
    path("docs", docs),
    path("", include("dashboard.urls")),
    path("account/", include("entrance.urls")),
    path("invitations/<id:token>", projects.views.invitation),
    path("alert-channels/confirm/<id:token>", alerts.views.confirm_address),
    path("connectors/<id:provider>/callback", connectors.views.callback),
    path("connectors/<id:provider>/undo", connectors.views.undo),
    path("v1/", include("tokens.urls")),
    path("v1/", include("projects.urls")),
    path("v1/", include("monitors.urls")),
    path("v1/", include("connectors.urls")),
    path("v1/", include("alerts.urls")),
    path("v1/", include("incidents.urls")),
    path("v1/", include("statuspages.urls")),
    path("v1/", include("privacy.urls")),
    re_path(r"^v1(/.*)?$", UnknownRoute.as_view()),
]

handler400 = "config.errors.bad_request"
handler404 = "config.errors.not_found"
handler500 = "config.errors.server_error"
