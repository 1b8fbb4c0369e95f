"""Callers, as in the tests of the API."""

from tests.api.conftest import _unthrottled, api, user

__all__ = ["_unthrottled", "api", "user"]
