"""Callers, as the API's tests have them."""

from tests.api.conftest import _unthrottled, api, user

__all__ = ["_unthrottled", "api", "user"]
