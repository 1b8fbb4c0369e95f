"""The question whether checks may reach private networks, for staff of an installation that `manage.py up` runs."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect

from audit.actions import Action
from core import private_networks
from core.errors import NotFound
from core.outbound import allow_private_networks
from dashboard.pages import PageRequest, done, page, render_page
from projects import log


@page
def show(request: PageRequest) -> HttpResponse:
    path = private_networks.answer_file()
    if path is None or not request.caller.user.is_staff:
        raise NotFound
    answer = request.POST.get("answer")
    if request.method != "POST" or answer not in ("allow", "refuse"):
        return render_page(request, "private_networks", allowed=private_networks.read(path))
    allowed = answer == "allow"
    try:
        with transaction.atomic():
            log.record(request.caller, Action.NETWORKS_ALLOWED if allowed else Action.NETWORKS_REFUSED)
            allow_private_networks(allowed=allowed)
    except OSError as error:
        messages.error(request, f"The answer cannot be stored in {path}: {error.strerror}")
        return redirect("private_networks")
    return done(request, f"Checks may {'' if allowed else 'not '}reach private networks.", "monitors")
