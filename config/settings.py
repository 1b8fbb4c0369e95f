"""Django settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from csp.constants import NONCE, NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string

from config.env import (
    Environment,
    base_url,
    boolean,
    broker_url,
    connectors_of,
    database_settings,
    decimal,
    group_roles,
    http_url,
    mail_settings,
    one_of,
    whole,
)
from core.egress import parse_networks
from core.hosts import PUBLIC_NAME_SERVERS, comma_separated, hosts_with_ports, name_servers
from core.postgresql import HISTORY
from core.version import product_version

BASE_DIR = Path(__file__).resolve().parent.parent

# docs/operate/settings.md describes each variable.
env = Environment(os.environ)
_database = env("DATABASE_URL", "", database_settings, from_file=True)
_history = env("HISTORY_DATABASE_URL", "", database_settings, from_file=True)
REDIS_URL: str | None = env("REDIS_URL", "", broker_url, from_file=True) or None
SECRET_KEY = env("SECRET_KEY", from_file=True)
ENCRYPTION_KEYS = env("ENCRYPTION_KEYS", "", comma_separated, from_file=True)
DATA_DIR = env("DATA_DIR", str(BASE_DIR / ".data"), Path)
DEBUG = env("DEBUG", "false", boolean)
ALLOWED_HOSTS = env("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]", comma_separated)
BASE_URL = env("BASE_URL", "http://localhost:8000", base_url)
STAGING_URL = env("STAGING_URL", "http://localhost:8001", base_url)
ALLOWED_PRIVATE_NETWORKS = env("ALLOWED_PRIVATE_NETWORKS", "", parse_networks)
globals().update(env("EMAIL_URL", "", mail_settings, from_file=True))
DEFAULT_FROM_EMAIL = SERVER_EMAIL = env("EMAIL_FROM", "pulsekeeper@localhost")
SSL_CERT_FILE = env("SSL_CERT_FILE")
LOCATION_NAME = env("LOCATION_NAME", "Default")
DNS_SERVERS = env("DNS_SERVERS", "", name_servers)
CONNECTIVITY_TARGETS = env("CONNECTIVITY_TARGETS", PUBLIC_NAME_SERVERS, hosts_with_ports, or_empty=True)
RDAP_BOOTSTRAP_URL = env("RDAP_BOOTSTRAP_URL", "https://data.iana.org/rdap/", http_url)
CONNECTORS = env("CONNECTORS", "vercel=vercel,netlify=netlify", connectors_of)
VERCEL_URL = env("VERCEL_URL", "https://vercel.com", base_url)
VERCEL_API_URL = env("VERCEL_API_URL", "https://api.vercel.com", base_url)
VERCEL_CLIENT_ID = env("VERCEL_CLIENT_ID")
VERCEL_CLIENT_SECRET = env("VERCEL_CLIENT_SECRET", from_file=True)
VERCEL_SLUG = env("VERCEL_SLUG")
NETLIFY_URL = env("NETLIFY_URL", "https://app.netlify.com", base_url)
NETLIFY_API_URL = env("NETLIFY_API_URL", "https://api.netlify.com", base_url)
NETLIFY_CLIENT_ID = env("NETLIFY_CLIENT_ID")
NETLIFY_CLIENT_SECRET = env("NETLIFY_CLIENT_SECRET", from_file=True)
SIGN_UP = env("SIGN_UP", "false", boolean)
GITHUB_URL = env("GITHUB_URL", "https://github.com", base_url)
GITHUB_API_URL = env("GITHUB_API_URL", "https://api.github.com", base_url)
GITHUB_CLIENT_ID = env("GITHUB_CLIENT_ID")
GITHUB_CLIENT_SECRET = env("GITHUB_CLIENT_SECRET", from_file=True)
GOOGLE_URL = env("GOOGLE_URL", "https://accounts.google.com", base_url)
GOOGLE_TOKEN_URL = env("GOOGLE_TOKEN_URL", "https://oauth2.googleapis.com", base_url)
GOOGLE_API_URL = env("GOOGLE_API_URL", "https://openidconnect.googleapis.com", base_url)
GOOGLE_CLIENT_ID = env("GOOGLE_CLIENT_ID")
GOOGLE_CLIENT_SECRET = env("GOOGLE_CLIENT_SECRET", from_file=True)
OIDC_ISSUER = env("OIDC_ISSUER", "", http_url)
OIDC_CLIENT_ID = env("OIDC_CLIENT_ID")
OIDC_CLIENT_SECRET = env("OIDC_CLIENT_SECRET", from_file=True)
OIDC_NAME = env("OIDC_NAME", "SSO")
OIDC_GROUPS_CLAIM = env("OIDC_GROUPS_CLAIM", "groups")
OIDC_ALLOWED_GROUPS = env("OIDC_ALLOWED_GROUPS", "", comma_separated)
OIDC_STAFF_GROUPS = env("OIDC_STAFF_GROUPS", "", comma_separated)
OIDC_PROJECT_ROLES = env("OIDC_PROJECT_ROLES", "", group_roles)
OIDC_ONLY = env("OIDC_ONLY", "false", boolean)
THROTTLE_SCALE = env("THROTTLE_SCALE", "1.0", decimal(0))
TRUSTED_PROXIES = env("TRUSTED_PROXIES", "", parse_networks)
SECURE_HSTS_SECONDS = env("HSTS_SECONDS", "2592000", whole(0))
METRICS_ALLOWED = env("METRICS_ALLOWED", "127.0.0.0/8,::1/128", parse_networks)
STATUS_PAGE_DOMAINS = [domain.lower() for domain in env("STATUS_PAGE_DOMAINS", "", comma_separated)]
RESULTS_KEPT_DAYS = env("RESULTS_KEPT_DAYS", "14", whole(2, 3650))
ROLLUPS_KEPT_DAYS = env("ROLLUPS_KEPT_DAYS", "400", whole(2, 36500))
AUDIT_KEPT_DAYS = env("AUDIT_KEPT_DAYS", "400", whole(1, 36500))
FLAPPING_CHANGES = env("FLAPPING_CHANGES", "3", whole(3, 100))
FLAPPING_MINUTES = env("FLAPPING_MINUTES", "30", whole(2, 1440))
LOG_LEVEL = env("LOG_LEVEL", "INFO", one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"))
LOG_FORMAT = env("LOG_FORMAT", "text", one_of("text", "json"))
SENTRY_DSN = env("SENTRY_DSN", "", http_url, from_file=True)
SENTRY_ENVIRONMENT = env("SENTRY_ENVIRONMENT", "production")
SENTRY_RELEASE = env("SENTRY_RELEASE") or None
SENTRY_TRACES_SAMPLE_RATE = env("SENTRY_TRACES_SAMPLE_RATE", "0.0", decimal(0, 1))
OTEL_EXPORTER_OTLP_ENDPOINT = env("OTEL_EXPORTER_OTLP_ENDPOINT", "", http_url)
PORT = env("PORT", "8000", whole(1, 65535))
ADMIN_EMAIL = env("ADMIN_EMAIL", "admin@example.com")
ADMIN_PASSWORD = env("ADMIN_PASSWORD")
ADMIN_PLAN = env("ADMIN_PLAN", "local")
env.raise_errors()
if any(oidc := (OIDC_ISSUER, OIDC_CLIENT_ID, OIDC_CLIENT_SECRET)) and not all(oidc):
    raise ImproperlyConfigured("OIDC_ISSUER, OIDC_CLIENT_ID and OIDC_CLIENT_SECRET must be set together")
if OIDC_ONLY and not OIDC_ISSUER:
    raise ImproperlyConfigured("OIDC_ONLY needs OIDC_ISSUER to sign in with")

SERVERLESS = not _database  # e.g. `manage.py probe` and --help, which need no secrets either

if SERVERLESS:
    # Imported here, because beat reads the settings too and does not need them.
    from cryptography.fernet import Fernet
    from django.core.management.utils import get_random_secret_key

    SECRET_KEY = SECRET_KEY or get_random_secret_key()
    ENCRYPTION_KEYS = ENCRYPTION_KEYS or (Fernet.generate_key().decode(),)
    DATABASES: dict[str, Any] = {"default": {"ENGINE": "django.db.backends.dummy"}}
else:
    if not SECRET_KEY or not ENCRYPTION_KEYS:
        raise ImproperlyConfigured("SECRET_KEY and ENCRYPTION_KEYS must be set if DATABASE_URL is set")
    DATABASES = {"default": _database} | ({HISTORY: _history} if _history else {})
    DATABASE_ROUTERS = ["checks.results.database.Router"] if _history else []
    for _each in DATABASES.values():
        # A pool, because worker threads return their connection while they wait for the network. Our backend tests each
        # connection before use: a broken one would cost a batch its claims.
        _each["ENGINE"] = "core.postgresql"
        # They outlive a transaction, after which PgBouncer gives the server's connection to another client.
        _each["DISABLE_SERVER_SIDE_CURSORS"] = True
        _each["OPTIONS"] = {
            **_each.get("OPTIONS", {}),  # options of the URL, such as sslmode
            "pool": {"min_size": 1, "max_size": 16},
            "prepare_threshold": 5,  # any number enables `core.db.fetch_prepared`; Django itself prepares nothing
        }

if REDIS_URL:
    CACHES = {"default": {"BACKEND": "core.cache.FailOpenRedisCache", "LOCATION": REDIS_URL, "KEY_PREFIX": "json"}}

# Scope: (requests, seconds). `core.throttles` defines which requests count together.
THROTTLES = {
    "sign-in": (20, 60),
    "sign-in-email-address": (20, 900),  # one account from one address
    # One account from all addresses: against distributed guessing. Ten addresses alone do not use it up.
    "sign-in-email": (300, 900),
    "second-factor": (10, 900),
    "sign-up": (20, 3600),
    "account-mail": (5, 3600),  # mails to one address that other people can trigger
    "password": (10, 900),
    "export": (10, 3600),
    "join": (30, 60),
    "unauthorized": (120, 60),
    "create-and-test": (60, 60),
    "check-now": (300, 60),
    "ask-provider": (60, 60),
    "connector-callback": (60, 60),
    "sign-in-elsewhere": (60, 60),  # by address: each stores a state, and may ask the provider
    "invite": (30, 3600),
    "test-channel": (30, 600),
    "logo": (20, 600),
    "manifest": (30, 60),
    "metrics": (120, 60),
    "backtest": (30, 60),  # each may take two seconds of CPU
    "status-subscribe": (20, 3600),
    "status-subscribe-address": (5, 3600),
    "status-password": (10, 900),
    "status-password-page": (200, 900),  # of all clients together, against distributed guessing
    "status-links": (60, 60),
    "calendars": (60, 60),
    "acknowledge-links": (300, 60),  # a storm has many links, and an office one address
    "pings": (3000, 60),
    "requests": (1200, 60),
}
ROOT_URLCONF = "config.urls"
AUTH_USER_MODEL = "accounts.User"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False
APPEND_SLASH = False  # a redirected POST would lose its body

# Workers need neither sign-in nor linking; each saves the 9 MB of social-auth.
IS_WORKER = "celery" in (Path(sys.argv[0]).name, Path(sys.argv[0]).parent.name)

OUR_APPS = [
    "config",
    "core",
    "audit",
    "accounts",
    "projects",
    "tokens",
    "locations",
    "checks.results",
    "monitors",
    "connectors",
    "incidents",
    "notifications",
    "alerts",
    "oncall",
    "statuspages",
    "devserver",
    "manifests",
    "dashboard",
    "signin",
]
INSTALLED_APPS = [
    *OUR_APPS,
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    *([] if IS_WORKER else ["social_django"]),
    "csp",
    "django_htmx",
    "django.contrib.admin.apps.SimpleAdminConfig",  # autodiscover runs in `config.urls`: workers need no admin
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.forms",
]

MIDDLEWARE = [
    "config.access.trusted_scheme",
    # Middleware above `pings` may only set headers that depend on host and scheme, because `config.pings` caches them.
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "config.middleware.status_pages",
    "config.metrics.serve_metrics",
    "django.middleware.common.CommonMiddleware",
    "config.middleware.pings",
    "audit.origin.remember_origin",
    "config.middleware.compress",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "config.access.log_requests",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "config.middleware.limit_forms",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "config.middleware.refuse",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "dashboard.pages.navigation",
            ],
            "builtins": ["core.templatetags.pulsekeeper"],
        },
    }
]

FORM_RENDERER = "core.forms.Renderer"

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True  # no collectstatic needed

PASSWORD_HASHERS = ["accounts.hashing.SharedHasher", "accounts.hashing.EarlierHasher"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# Cookies are for pages; the API uses none.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BASE_URL.startswith("https://")
SESSION_COOKIE_SAMESITE = "Lax"  # redirects from GitHub or Google must include it
CSRF_COOKIE_HTTPONLY = True
CSRF_TRUSTED_ORIGINS = [BASE_URL]
# Warnings of `check --deploy` that do not apply (docs/operate/observability.md):
SILENCED_SYSTEM_CHECKS = [
    "security.W005",  # HSTS for subdomains, which may be other services
    "security.W008",  # SSL redirect: the proxy does it, and health checks use http
    "security.W021",  # HSTS preload
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "account_login"

# For pages without their own policy. Inline scripts and styles need `nonce="{{ request.csp_nonce }}"`.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "manifest-src": [SELF],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

# Sign-in on the web (django-allauth).
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "mandatory"
ACCOUNT_CHANGE_EMAIL = True
ACCOUNT_EMAIL_SUBJECT_PREFIX = ""
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_REAUTHENTICATION_REQUIRED = True  # protects sensitive actions from stolen sessions
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_RATE_LIMITS = False  # THROTTLES has them
ACCOUNT_ADAPTER = "signin.adapter.AccountAdapter"
ACCOUNT_FORMS = {
    "login": "signin.forms.LoginForm",
    "signup": "signin.forms.SignupForm",
    "add_email": "signin.forms.AddEmailForm",
    "reauthenticate": "signin.forms.PasswordAgainForm",
    "change_password": "signin.forms.ChangePasswordForm",
    "set_password": "signin.forms.SetPasswordForm",
    "reset_password": "signin.forms.ResetPasswordForm",
    "reset_password_from_key": "signin.forms.ResetPasswordKeyForm",
}
MFA_ADAPTER = "signin.adapter.EncryptingAdapter"
MFA_FORMS = {
    "authenticate": "signin.forms.AuthenticateForm",
    "reauthenticate": "signin.forms.ReauthenticateForm",
    "activate_totp": "signin.forms.ActivateForm",
}
# Sign-in needs a verified address anyway; this concerns a pending change of address.
MFA_ALLOW_UNVERIFIED_EMAIL = True
MFA_TOTP_ISSUER = "Pulsekeeper"
MFA_TOTP_TOLERANCE = 1  # phone clocks may be off by some seconds

# GitHub, Google and OpenID Connect for sign-in, Vercel and Netlify as connectors. No step stores a token in extra_data.
SOCIAL_AUTH_PIPELINE = (
    "social_core.pipeline.social_auth.social_details",
    "social_core.pipeline.social_auth.social_uid",
    "signin.social.pipeline.require_group",
    "signin.social.pipeline.require_verified_address",
    "signin.social.pipeline.reauthenticate",
    "social_core.pipeline.social_auth.social_user",
    "signin.social.pipeline.find_or_create_account",
    "social_core.pipeline.social_auth.associate_user",
    "signin.social.pipeline.record_link",
)
SOCIAL_AUTH_VERCEL_PIPELINE = SOCIAL_AUTH_NETLIFY_PIPELINE = ("connectors.services.save_connector",)

DATA_UPLOAD_MAX_MEMORY_SIZE = 256 * 1024  # the largest valid JSON body, in ASCII, is about 100 KB
# The gateway refuses larger bodies, so uploads stay in memory.
MAX_BODY_BYTES = 1_536 * 1024  # a logo of 1 MiB, in base64
FILE_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.MemoryFileUploadHandler"]
DATA_UPLOAD_MAX_NUMBER_FIELDS = 2_000  # forms may select a thousand monitors

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["tokens.authentication.BearerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_THROTTLE_CLASSES": ["core.throttles.CallerThrottle"],
    "DEFAULT_PARSER_CLASSES": ["core.api.parsers.JsonParser"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "core.api.parsers.AlwaysJson",
    "DEFAULT_SCHEMA_CLASS": "core.api.schema.PulsekeeperSchema",
    "DEFAULT_METADATA_CLASS": None,  # OPTIONS is answered with 405
    "EXCEPTION_HANDLER": "core.api.errors.exception_handler",
    "UNAUTHENTICATED_USER": None,
}

IDEMPOTENCY_STORE = "projects.idempotency.create_once"

SPECTACULAR_SETTINGS = {
    "TITLE": "Pulsekeeper API",
    "DESCRIPTION": "Monitors, projects and tokens of the Pulsekeeper uptime monitoring service.",
    "VERSION": product_version(),
    "OAS_VERSION": "3.1.0",
    "SERVERS": [{"url": BASE_URL, "description": "Production"}, {"url": STAGING_URL, "description": "Staging"}],
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_PATCH": False,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "DISABLE_DOCSTRING_DESCRIPTIONS": True,  # they are for developers
    "POSTPROCESSING_HOOKS": ["drf_spectacular.hooks.postprocess_schema_enums", "config.openapi.finish"],
    # Found when the document is generated: the definitions need loaded apps.
    "ENUM_NAME_OVERRIDES": SimpleLazyObject(lambda: import_string("config.openapi.enum_values")()),
}

# While PostgreSQL or the broker is away, tasks fail every second, and processes try to connect.
OUTAGE_LOGGERS = [
    "celery.app.trace",
    "celery.beat",
    "celery.worker.consumer.consumer",
    "celery.worker.request",
    "config.beat",
    "core.cache",
    "core.replies",
    "core.throttles",
    "monitors.checking.on_demand",
    "monitors.tasks",
    "notifications.outbox",
    "psycopg.pool",
]

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "crashes": {"()": "core.logs.CrashFilter"},
        "outages": {"()": "core.logs.OutageFilter"},
    },
    "formatters": {"line": {"()": "core.logs.Formatter", "json": LOG_FORMAT == "json"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {name.partition(".")[0]: {"level": LOG_LEVEL} for name in OUR_APPS}
    # Only crashes: `config.access` logs the status of every request.
    | {"django.request": {"level": "ERROR", "filters": ["crashes"]}}
    # A long query to a page of the admin: anybody could fill the disk with its traceback.
    | {"django.security.DisallowedRedirect": {"level": "CRITICAL"}}
    | {name: {"filters": ["outages"]} for name in OUTAGE_LOGGERS}
    # Its warnings contain webhook URLs. Callers log failures.
    | {"urllib3": {"level": "ERROR"}}
    # Skip the warnings about retries; the final failure is logged as an error.
    | {"opentelemetry": {"level": "ERROR"}},
}
