"""What social-auth-core asks of a framework, as far as linking an account and signing in by OAuth need it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.sessions.backends.base import SessionBase
from social_core.backends.base import BaseAuth
from social_core.strategy import BaseStrategy


class Strategy(BaseStrategy[Any]):
    """`session` is what a browser's session would hold, `data` the query that the provider leads back with.

    There is no pipeline: what comes of it is the answer with the tokens, not a user. Settings of social-auth's own
    there are none either. `storage` is for the states of backends that do not associate only.
    """

    def __init__(
        self,
        *,
        session: dict[str, Any] | SessionBase | None = None,
        data: Mapping[str, str] | None = None,
        storage: Any = None,
    ) -> None:
        super().__init__(storage)
        self.session = {} if session is None else session
        self._data = dict(data or {})

    def authenticate(self, backend: BaseAuth[Any], *args: Any, **kwargs: Any) -> Any:
        return kwargs["response"]

    def get_setting(self, name: str) -> Any:
        raise KeyError(name)

    def get_request_data(self, merge: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        return self._data

    def build_absolute_uri(self, path: str | None = None) -> str:
        return path or ""

    def session_get(self, name: str, default: Any = None) -> Any:
        return self.session.get(name, default)

    def session_set(self, name: str, value: Any) -> None:
        self.session[name] = value

    def session_pop(self, name: str) -> Any:
        return self.session.pop(name, None)
