"""A client of the API that validates every response against openapi.json."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from django.test import Client
from jsonschema import Draft202012Validator

from accounts.models import User
from core.clock import utc_now
from projects.access import Caller
from projects.models import Project
from tests.helpers import PASSWORD
from tokens.services import create_token, sign_in

SCHEMA = Path(__file__).parents[2] / "docs" / "openapi.json"


@cache
def read_document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(SCHEMA.read_text())
    return document


Document = Callable[[], dict[str, Any]]  # tests of toys replace `read_document`, and the caches have to follow


@cache
def _patterns(document: Document) -> list[tuple[re.Pattern[str], str]]:
    """Return each path of the document with its pattern, in which an id is any word but `test`."""
    return [
        (re.compile(re.sub(r"\{\w+\}", "(?!test(?:/|$))[^/]*", path)), path)  # paths have no special characters
        for path in document()["paths"]
    ]


@cache
def _validator(document: Document, method: str, template: str, status: int) -> Draft202012Validator | None:
    operation = document()["paths"][template].get(method)
    if operation is None:
        return None
    answers = operation["responses"]
    assert str(status) in answers or status >= 400, f"{method} {template}: {status} is not documented"
    answer = answers.get(str(status)) or answers["default"]
    if "application/json" not in answer["content"]:
        return None
    schema: dict[str, Any] = answer["content"]["application/json"]["schema"]
    return Draft202012Validator(schema | {"components": document()["components"]})


def _validator_of(method: str, path: str, status: int) -> Draft202012Validator | None:
    """Return None if the document has no such operation: 404s of unknown addresses, 405s."""
    asked = path.split("?")[0]
    templates = [template for pattern, template in _patterns(read_document) if pattern.fullmatch(asked)]
    return next(filter(None, (_validator(read_document, method, template, status) for template in templates)), None)


class Answer:
    def __init__(self, response: Any) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.text = response.getvalue().decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> str:
        """Return the code and reason of an Error: `validation_error url: must …`."""
        return " ".join(filter(None, [self.json["error"], self.json.get("reason")]))


class Api:
    """Requests with one credential, or with none."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token
        self._client = Client(raise_request_exception=False)

    @classmethod
    def signed_in(cls, user: User) -> Api:
        return cls(sign_in(email=user.email, password=PASSWORD, now=utc_now())[1])

    @classmethod
    def with_token(cls, user: User, project: Project, *, access: str = "write") -> Api:
        caller, now = Caller(user), utc_now()
        return cls(create_token(caller, project_id=project.public_id, name="t", access=access, now=now)[1])

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        key: str | None = None,
        if_match: str | None = None,
    ) -> Answer:
        data = body if isinstance(body, str | bytes) else "" if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if key is not None:
            headers["Idempotency-Key"] = key
        if if_match is not None:
            headers["If-Match"] = if_match
        answer = Answer(self._client.generic(method.upper(), path, data, content_type=content_type, headers=headers))
        validator = _validator_of(method.lower(), path, answer.status)
        if validator is not None:
            validator.validate(answer.json)
        return answer

    def get(self, path: str) -> Answer:
        return self.send("get", path)

    def post(self, path: str, body: Any = None, *, key: str | None = None) -> Answer:
        """`key` is sent as Idempotency-Key."""
        return self.send("post", path, body, key=key)

    def patch(self, path: str, body: Any = None) -> Answer:
        return self.send("patch", path, body)

    def delete(self, path: str) -> Answer:
        return self.send("delete", path)
