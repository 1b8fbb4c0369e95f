"""Choose the escalation policy of a project or a monitor."""

from __future__ import annotations

from django import forms
from django.db.models import Case, OuterRef, Q, Subquery, When
from django.db.models.functions import JSONObject

from dashboard.forms import Choices
from oncall import selectors
from oncall.models import EscalationPolicy
from projects.access import Caller
from projects.models import Project


class PolicyChoiceField(forms.ChoiceField):
    """The id of a policy, or None for the empty choice, labelled `none`."""

    def __init__(self, choices: Choices, *, none: str, help_text: str) -> None:
        super().__init__(choices=[("", none), *choices], required=False, label="Escalation policy", help_text=help_text)

    def clean(self, value: object) -> str | None:
        return super().clean(value) or None


def policies_of(caller: Caller, stored: int | None, *, project: Project | None = None) -> tuple[Choices, str | None]:
    """Return the choices, and the id of the policy with the key `stored`. At most two queries.

    With `project` they are those of this project, and the caller's own. The stored one may be the owner's, which has
    no name for others.
    """
    rows = selectors.list_policies(caller).exclude(project__in=caller.viewed).order_by("name", "pk")
    found = [row for row in rows if project is None or row.project_id in (project.pk, None)]
    chosen = next((row.public_id for row in found if row.pk == stored), None)
    choices = [(row.public_id, _label(row, with_project=project is None)) for row in found]
    if stored is not None and chosen is None:
        chosen = EscalationPolicy.objects.filter(pk=stored).values_list("public_id", flat=True).first()
        if chosen is not None:
            choices.append((chosen, "A policy of the owner"))
    return choices, chosen


def applying_policy() -> Subquery:
    """Return an expression for a query of monitors: as JSON, the policy that `alerts.batch.policy_of` finds."""
    policies = EscalationPolicy.objects.exclude(steps=[])
    policies = policies.filter(Q(project=None, owner=OuterRef("owner")) | Q(project=OuterRef("project")))
    own, of_project = OuterRef("escalation_policy"), OuterRef("project__escalation_policy")
    found = policies.filter(Q(pk=own) | Q(pk=of_project))
    found = found.annotate(rank=Case(When(pk=own, then=0), default=1)).order_by("rank")
    columns = {"public_id": "public_id", "name": "name", "project": "project_id", "owner": "owner_id"}
    return Subquery(found.values(shown=JSONObject(**columns))[:1])


def is_visible(caller: Caller, policy: EscalationPolicy) -> bool:
    """Return whether the policy of a monitor that the caller can read is visible too: it may be the owner's alone."""
    return policy.project_id is not None or policy.owner_id == caller.user.pk


def _label(policy: EscalationPolicy, *, with_project: bool) -> str:
    return f"{policy.name} · {policy.project.name}" if with_project and policy.project else policy.name
