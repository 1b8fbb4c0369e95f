"""API tokens of projects: list, create (the token is shown once) and revoke."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from core.clock import utc_now
from dashboard.bodies import validated
from dashboard.choosing import Choices, project_choices
from dashboard.fields import PlainRenderer, SpanField
from dashboard.once import OnceForm
from dashboard.pages import PageRequest, page
from dashboard.spans import MS_OF, parse_span
from projects import access
from projects.access import Caller
from projects.models import Project
from tokens import services
from tokens.models import ProjectToken
from tokens.serializers import MAX_TTL_SEC, MIN_TTL_SEC, TokenInputSerializer

SECTION = "tokens"
NEVER, CUSTOM = "never", "custom"


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token in a list, and whether the caller may revoke it."""

    token: ProjectToken
    expired: bool
    revocable: bool


class NewTokenForm(OnceForm):
    default_renderer = PlainRenderer
    name = forms.CharField(max_length=200, help_text="Where it is used: the deploy pipeline, a script, a dashboard.")
    project_id = forms.ChoiceField(
        label="Project",
        help_text="The token can read and change this project only.",
    )
    lifetime = forms.ChoiceField(
        label="Expires",
        choices=[
            ("7d", "After 7 days"),
            ("30d", "After 30 days"),
            ("90d", "After 90 days"),
            (CUSTOM, "After a custom time"),
            (NEVER, "Never"),
        ],
        initial="90d",
        widget=forms.RadioSelect,
    )
    custom = SpanField(
        label="Lifetime",
        required=False,
        least=MIN_TTL_SEC,
        most=MAX_TTL_SEC,
        help_text="As 12h, 2d or 6w; one minute to 90 days.",
    )

    def __init__(self, data: QueryDict | None = None, *, projects: Choices, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        field = self.fields["project_id"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = projects

    def clean(self) -> None:
        if self.cleaned_data.get("lifetime") != CUSTOM:
            self.errors.pop("custom", None)
        elif self.cleaned_data.get("custom", 0) is None:
            self.add_error("custom", "Enter a lifetime.")

    def body(self) -> dict[str, Any]:
        given = self.cleaned_data
        body = {"name": given["name"], "project_id": given["project_id"]}
        match given["lifetime"]:
            case "never":
                return body
            case "custom":
                return body | {"ttl_seconds": given["custom"]}
            case chosen:
                return body | {"ttl_seconds": int(parse_span(chosen) / MS_OF["s"])}


def token_rows(caller: Caller, *, now: datetime, project: Project | None = None) -> list[TokenRow]:
    """Return the tokens, newest first, in two queries."""
    tokens = services.list_tokens(caller).select_related("project", "created_by").order_by("-created_at", "-pk")
    if project is not None:
        tokens = tokens.filter(project=project)
    roles = access.roles_of(caller)
    return [
        TokenRow(
            token,
            expired=token.expires_at is not None and token.expires_at <= now,
            revocable=token.created_by_id == caller.user.pk or roles.get(token.project_id) in access.MANAGERS,
        )
        for token in tokens
    ]


@page
def index(request: PageRequest) -> HttpResponse:
    context = {
        "section": SECTION,
        "tokens": token_rows(request.caller, now=utc_now()),
        "has_projects": access.accessible_projects(request.caller).exists(),
    }
    return render(request, "dashboard/tokens/list.html", context)


@page
def new(request: PageRequest) -> HttpResponse:
    """Create a token. Only this response shows it; a reload does not."""
    caller = request.caller
    form = NewTokenForm(
        request.POST if request.method == "POST" else None,
        projects=project_choices(caller),
        initial={"project_id": request.GET.get("project")},
    )
    if request.method == "POST" and form.is_valid():
        shown = []

        def create(now: datetime) -> str:
            given = validated(TokenInputSerializer, form.body())
            token, plaintext = services.create_token(
                caller,
                project_id=given["project_id"],
                name=given["name"],
                ttl_seconds=given.get("ttl_seconds"),
                now=now,
            )
            shown.append((token, plaintext))
            return token.public_id

        created = form.create(request, create)
        if created is not None and created.repeated:
            messages.warning(
                request,
                "The token was already created and shown. If it is lost, revoke it and create another.",
            )
            return redirect("tokens")
        if created is not None:
            ((token, plaintext),) = shown
            context = {
                "section": SECTION,
                "token": token,
                "plaintext": plaintext,
                "base_url": settings.BASE_URL,
            }
            return render(request, "dashboard/tokens/created.html", context)
    return render(request, "dashboard/tokens/new.html", {"section": SECTION, "form": form})


@require_POST
@page
def revoke(request: PageRequest, token_id: str) -> HttpResponse:
    services.revoke_token(request.caller, token_id)
    messages.success(request, "Token revoked.")
    return redirect("tokens")
