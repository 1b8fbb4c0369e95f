"""Bearer authentication for DRF: `request.user` is a Caller, `request.auth` the plaintext."""

from __future__ import annotations

from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.request import Request

from core import logs
from core.addresses import client_network
from core.clock import utc_now
from core.errors import Unauthorized
from core.throttles import count_request
from projects.access import Caller
from tokens.services import caller_for


class BearerAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[Caller, str]:
        scheme, _, credential = get_authorization_header(request).partition(b" ")
        plaintext = credential.strip().decode("latin-1")
        caller = caller_for(plaintext, now=utc_now()) if scheme.lower() == b"bearer" else None
        if caller is None:
            # Only failures are counted: a client with a token that shares the address is not stopped.
            count_request("unauthorized", client_network(request))
            raise Unauthorized
        logs.add(user=caller.user.public_id)
        if caller.project is not None:
            logs.add(project=caller.project.public_id)
        return caller, plaintext

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"
