"""API tokens of projects: list, create (the token is shown once) and revoke."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect

from core.api.fields import validated
from dashboard.forms import DurationField, ObjectForm, PlainRenderer, project_choices
from dashboard.pages import PageRequest, button, page, render_page
from projects import access
from projects.access import Caller
from projects.models import Project
from tokens import services
from tokens.models import ProjectToken
from tokens.serializers import MAX_TTL_SEC, MIN_TTL_SEC, TokenInputSerializer

DAY_SEC = 86_400
NEVER, CUSTOM = "never", "custom"


class NewTokenForm(ObjectForm):
    default_renderer = PlainRenderer
    name = forms.CharField(max_length=200, help_text="Where it is used: the deploy pipeline, a script, a dashboard.")
    project_id = forms.ChoiceField(label="Project", help_text="The token has access to this project only.")
    access = forms.ChoiceField(
        choices=[
            (ProjectToken.Access.WRITE.value, "Read and write"),
            (ProjectToken.Access.READ.value, "Read only: it changes nothing, and sees no ping addresses"),
        ],
        initial=ProjectToken.Access.WRITE.value,
        widget=forms.RadioSelect,
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
    custom = DurationField(
        label="Lifetime",
        required=False,
        minimum=MIN_TTL_SEC,
        maximum=MAX_TTL_SEC,
        help_text="As 12h, 2d or 6w; one minute to 90 days.",
    )

    def clean(self) -> None:
        if self.cleaned_data.get("lifetime") != CUSTOM:
            self.errors.pop("custom", None)
        elif self.cleaned_data.get("custom", 0) is None:
            self.add_error("custom", "Enter a lifetime.")

    def given(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        lifetime = cleaned["lifetime"]
        body = {name: cleaned[name] for name in ("name", "project_id", "access")}
        if lifetime != NEVER:
            body["ttl_seconds"] = cleaned["custom"] if lifetime == CUSTOM else DAY_SEC * int(lifetime[:-1])
        return validated(TokenInputSerializer, body)


def token_rows(
    caller: Caller, *, now: datetime, project: Project | None = None
) -> list[tuple[ProjectToken, bool, bool]]:
    """Return the tokens, newest first, whether each has expired, and whether the caller may revoke it. Two queries."""
    tokens = services.list_tokens(caller).select_related("project", "created_by").order_by("-created_at", "-pk")
    if project is not None:
        tokens = tokens.filter(project=project)
    roles = access.roles_of(caller)
    return [
        (
            token,
            token.expires_at is not None and token.expires_at <= now,
            token.created_by_id == caller.user.pk or roles.get(token.project_id) in access.MANAGERS,
        )
        for token in tokens
    ]


@page
def index(request: PageRequest) -> HttpResponse:
    tokens = token_rows(request.caller, now=request.now)
    has_projects = access.accessible_projects(request.caller, roles=access.WRITERS).exists()
    return render_page(request, "tokens/list", tokens=tokens, has_projects=has_projects)


@page
def new(request: PageRequest) -> HttpResponse:
    """Create a token. Only this response shows it; a reload does not."""
    caller, shown = request.caller, dict[str, Any]()
    form = NewTokenForm(request.POST or None, initial={"project_id": request.GET.get("project")})
    form.fields["project_id"].choices = project_choices(caller)  # type: ignore[attr-defined]

    def create() -> ProjectToken:
        shown["token"], shown["plaintext"] = token, _ = services.create_token(caller, **form.given(), now=request.now)
        return token

    created = form.create(request, create)
    if created is None:
        return render_page(request, "tokens/new", form=form)
    if created.repeated:
        messages.warning(
            request, "The token was already created and shown. If it is lost, revoke it and create another."
        )
        return redirect("tokens")
    return render_page(request, "tokens/created", **shown, base_url=settings.BASE_URL)


revoke = button(services.revoke_token, "Token revoked.", "tokens")
