"""The root URL of the deployment."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect


def home(request: HttpRequest) -> HttpResponse:
    return redirect("/monitors" if request.user.is_authenticated else "/account/login/")
