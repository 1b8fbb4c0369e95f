"""Template tags for allauth's pages."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import get_adapter
from django import template
from django.conf import settings

from core.user_agents import name_of
from signin.social.backends import BACKENDS, configured
from signin.social.pipeline import linked_providers

register = template.Library()
register.filter("browser_name", name_of)


@register.inclusion_tag("accounts/social_buttons.html", takes_context=True)
def social_buttons(context: template.Context, verb: str, *, again: bool = False) -> dict[str, Any]:
    """Return a button for each configured provider; `again`: to reauthenticate, for each linked one."""
    linked = linked_providers(context["request"].user) if again else BACKENDS
    return {
        "verb": verb,
        "passwords": passwords_are_on(),
        "again": again,
        # Not the classes, because a template would call them.
        "providers": [(backend.name, backend.title) for backend in configured() if backend.name in linked],
        "next": context.get("redirect_field_value"),
        "csrf_token": context.get("csrf_token"),
    }


@register.simple_tag
def passwords_are_on() -> bool:
    return not settings.OIDC_ONLY


@register.simple_tag(takes_context=True)
def sign_up_is_open(context: template.Context) -> bool:
    request = context["request"]
    return bool(get_adapter(request).is_open_for_signup(request))
