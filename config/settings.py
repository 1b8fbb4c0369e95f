"""Django settings, from the typed environment in `config.env`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import dj_database_url
from csp.constants import NONCE, NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string

from config.env import BASE_DIR, connectors_of, mail_settings, read_env
from config.variables import InvalidEnvironment

try:
    ENV = read_env()
except InvalidEnvironment as error:
    raise ImproperlyConfigured(str(error)) from None

SERVERLESS = ENV.database_url is None  # e.g. `manage.py probe` and --help, which need no secrets either

if SERVERLESS:
    # Imported here, because beat reads the settings too and does not need them.
    from cryptography.fernet import Fernet
    from django.core.management.utils import get_random_secret_key

    SECRET_KEY = ENV.secret_key or get_random_secret_key()
    ENCRYPTION_KEYS = ENV.encryption_keys or (Fernet.generate_key().decode(),)
    DATABASES: dict[str, Any] = {"default": {"ENGINE": "django.db.backends.dummy"}}
else:
    if not ENV.secret_key or not ENV.encryption_keys:
        raise ImproperlyConfigured("SECRET_KEY and ENCRYPTION_KEYS must be set if DATABASE_URL is set")
    SECRET_KEY, ENCRYPTION_KEYS = ENV.secret_key, ENV.encryption_keys
    DATABASES = {"default": dict(dj_database_url.parse(ENV.database_url or ""))}
    # A pool, because worker threads return their connection while they wait for the network. Our backend tests each
    # connection before use: a broken one would cost a batch its claims.
    DATABASES["default"]["ENGINE"] = "core.postgresql"
    DATABASES["default"]["OPTIONS"] = {
        **DATABASES["default"].get("OPTIONS", {}),  # options of the URL, such as sslmode
        "pool": {"min_size": 1, "max_size": 16, "timeout": 10},
        "prepare_threshold": 5,  # any number enables `core.db.fetch_prepared`; Django itself prepares nothing
    }

REDIS_URL = ENV.redis_url
CACHES: dict[str, Any] = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    if REDIS_URL is None
    else {"BACKEND": "core.cache.PatientCache", "LOCATION": REDIS_URL, "KEY_PREFIX": "json"}
}
ALLOWED_PRIVATE_NETWORKS = ENV.allowed_private_networks
SSL_CERT_FILE = ENV.ssl_cert_file
RDAP_BOOTSTRAP_URL = ENV.rdap_bootstrap_url
DNS_SERVERS = ENV.dns_servers
VERCEL_URL = ENV.vercel_url.rstrip("/")
VERCEL_API_URL = ENV.vercel_api_url.rstrip("/")
VERCEL_CLIENT_ID = ENV.vercel_client_id or ""
VERCEL_CLIENT_SECRET = ENV.vercel_client_secret or ""
VERCEL_SLUG = ENV.vercel_slug or ""
NETLIFY_URL = ENV.netlify_url.rstrip("/")
NETLIFY_API_URL = ENV.netlify_api_url.rstrip("/")
NETLIFY_CLIENT_ID = ENV.netlify_client_id or ""
NETLIFY_CLIENT_SECRET = ENV.netlify_client_secret or ""
SIGN_UP = ENV.sign_up
GITHUB_URL = ENV.github_url.rstrip("/")
GITHUB_API_URL = ENV.github_api_url.rstrip("/")
GITHUB_CLIENT_ID = ENV.github_client_id or ""
GITHUB_CLIENT_SECRET = ENV.github_client_secret or ""
GOOGLE_URL = ENV.google_url.rstrip("/")
GOOGLE_TOKEN_URL = ENV.google_token_url.rstrip("/")
GOOGLE_API_URL = ENV.google_api_url.rstrip("/")
GOOGLE_CLIENT_ID = ENV.google_client_id or ""
GOOGLE_CLIENT_SECRET = ENV.google_client_secret or ""
DATA_DIR = ENV.data_dir
RESULTS_KEPT_DAYS = ENV.results_kept_days
ROLLUPS_KEPT_DAYS = ENV.rollups_kept_days
AUDIT_KEPT_DAYS = ENV.audit_kept_days
FLAPPING_CHANGES = ENV.flapping_changes
FLAPPING_MINUTES = ENV.flapping_minutes
globals().update(mail_settings(ENV.email_url))
DEFAULT_FROM_EMAIL = SERVER_EMAIL = ENV.email_from
CONNECTORS = connectors_of(ENV.connectors)
BASE_URL = ENV.base_url.rstrip("/")
STAGING_URL = ENV.staging_url.rstrip("/")
TRUSTED_PROXIES = ENV.trusted_proxies
STATUS_PAGE_DOMAINS = [domain.lower() for domain in ENV.status_page_domains]
METRICS_ALLOWED = ENV.metrics_allowed
SENTRY_DSN = ENV.sentry_dsn
SENTRY_ENVIRONMENT = ENV.sentry_environment
SENTRY_RELEASE = ENV.sentry_release
SENTRY_TRACES_SAMPLE_RATE = ENV.sentry_traces_sample_rate
OTEL_EXPORTER_OTLP_ENDPOINT = ENV.otel_exporter_otlp_endpoint

# Scope: (requests, seconds). `core.throttles` defines which requests count together.
THROTTLES = {
    "sign-in": (20, 60),
    "sign-in-email": (20, 900),
    "second-factor": (10, 900),
    "sign-up": (20, 3600),
    "account-mail": (5, 3600),  # mails to one address that other people can trigger
    "password": (10, 900),
    "export": (10, 3600),
    "unauthorized": (120, 60),
    "create-and-test": (60, 60),
    "check-now": (300, 60),
    "ask-provider": (60, 60),
    "connector-callback": (60, 60),
    "invite": (30, 3600),
    "test-channel": (30, 600),
    "logo": (20, 600),
    "status-subscribe": (20, 3600),
    "status-subscribe-address": (5, 3600),
    "status-password": (10, 900),
    "status-password-page": (200, 900),  # of all clients together, against distributed guessing
    "status-links": (60, 60),
    "pings": (3000, 60),
    "requests": (1200, 60),
}
THROTTLE_SCALE = ENV.throttle_scale

DEBUG = ENV.debug
ALLOWED_HOSTS = list(ENV.allowed_hosts)
ROOT_URLCONF = "config.urls"
AUTH_USER_MODEL = "accounts.User"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False
APPEND_SLASH = False  # a redirected POST would lose its body

# Workers need neither sign-in nor linking; each saves the 9 MB of social-auth.
IS_WORKER = "celery" in (Path(sys.argv[0]).name, Path(sys.argv[0]).parent.name)

INSTALLED_APPS = [
    "config",
    "core",
    "audit",
    "accounts",
    "projects",
    "tokens",
    "checks.results",
    "monitors",
    "connectors",
    "incidents",
    "notifications",
    "alerts",
    "statuspages",
    "devserver",
    "manifests",
    "dashboard",
    "accounts.web",
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
    "django.middleware.common.CommonMiddleware",
    "config.middleware.pings",
    "audit.origin.remember_origin",
    "config.middleware.compress",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "config.access.log_requests",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
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
                "dashboard.context.navigation",
            ],
            "builtins": ["core.templatetags.pulsekeeper"],
        },
    }
]

FORM_RENDERER = "core.forms.Renderer"

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True  # no collectstatic needed

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# Cookies are for pages; the API uses none.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BASE_URL.startswith("https://")
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = (
    "Lax"  # redirects from GitHub or Google must include the session cookie
)
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_AGE = 14 * 24 * 3600
CSRF_TRUSTED_ORIGINS = [BASE_URL]
SECURE_HSTS_SECONDS = ENV.hsts_seconds
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
ACCOUNT_LOGOUT_ON_GET = False
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_RATE_LIMITS = False  # THROTTLES has them
ACCOUNT_ADAPTER = "accounts.web.adapter.AccountAdapter"
ACCOUNT_FORMS = {
    "login": "accounts.web.forms.LoginForm",
    "signup": "accounts.web.forms.SignupForm",
    "add_email": "accounts.web.forms.AddEmailForm",
    "reauthenticate": "accounts.web.forms.PasswordAgainForm",
    "change_password": "accounts.web.forms.ChangePasswordForm",
    "set_password": "accounts.web.forms.SetPasswordForm",
    "reset_password": "accounts.web.forms.ResetPasswordForm",
    "reset_password_from_key": "accounts.web.forms.ResetPasswordKeyForm",
}
MFA_ADAPTER = "accounts.web.adapter.EncryptingAdapter"
MFA_FORMS = {
    "authenticate": "accounts.web.forms.AuthenticateForm",
    "reauthenticate": "accounts.web.forms.ReauthenticateForm",
    "activate_totp": "accounts.web.forms.ActivateForm",
}
# Sign-in needs a verified address anyway; this concerns a pending change of address.
MFA_ALLOW_UNVERIFIED_EMAIL = True
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
MFA_TOTP_ISSUER = "Pulsekeeper"
MFA_TOTP_TOLERANCE = 1  # phone clocks may be off by some seconds

# GitHub and Google for sign-in, Vercel and Netlify as connectors. No step stores a token in extra_data.
SOCIAL_AUTH_PIPELINE = (
    "social_core.pipeline.social_auth.social_details",
    "social_core.pipeline.social_auth.social_uid",
    "accounts.web.social.pipeline.require_verified_address",
    "accounts.web.social.pipeline.reauthenticate",
    "social_core.pipeline.social_auth.social_user",
    "accounts.web.social.pipeline.find_or_create_account",
    "social_core.pipeline.social_auth.associate_user",
    "accounts.web.social.pipeline.record_link",
)
SOCIAL_AUTH_VERCEL_PIPELINE = SOCIAL_AUTH_NETLIFY_PIPELINE = ("connectors.oauth.save_connector",)

DATA_UPLOAD_MAX_MEMORY_SIZE = 256 * 1024  # the largest valid JSON body is about 20 KB
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
    "VERSION": "1.0.0",
    "OAS_VERSION": "3.1.0",
    "SERVERS": [
        {"url": BASE_URL, "description": "Production"},
        {"url": STAGING_URL, "description": "Staging"},
    ],
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_PATCH": False,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "DISABLE_DOCSTRING_DESCRIPTIONS": True,  # they are for developers
    "POSTPROCESSING_HOOKS": ["drf_spectacular.hooks.postprocess_schema_enums", "config.openapi.finish"],
    # Found when the document is generated: the definitions need loaded apps.
    "ENUM_NAME_OVERRIDES": SimpleLazyObject(lambda: import_string("config.openapi.enum_values")()),
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"crashes": {"()": "django.utils.log.CallbackFilter", "callback": lambda record: bool(record.exc_info)}},
    "formatters": {"line": {"()": "core.logs.Formatter", "json": ENV.log_format == "json"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
    "loggers": {
        name: {"level": ENV.log_level}
        for name in (
            "config",
            "core",
            "audit",
            "accounts",
            "projects",
            "tokens",
            "checks",
            "monitors",
            "connectors",
            "incidents",
            "alerts",
            "statuspages",
            "dashboard",
        )
    }
    # Only crashes: `config.access` logs the status of every request.
    | {"django.request": {"level": "ERROR", "filters": ["crashes"]}}
    # Its warnings contain webhook URLs. Callers log failures.
    | {"urllib3": {"level": "ERROR"}}
    # Skip the warnings about retries; the final failure is logged as an error.
    | {"opentelemetry": {"level": "ERROR"}},
}
