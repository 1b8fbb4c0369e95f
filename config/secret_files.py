"""Secrets out of files, as orchestrators mount them: `<NAME>_FILE` names the file that has the value of `<NAME>`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsError


class SecretFiles(PydanticBaseSettingsSource):
    """Of the fields `names` those whose file is given."""

    def __init__(self, settings: type[BaseSettings], *, names: tuple[str, ...]) -> None:
        super().__init__(settings)
        self._names = names

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return secret_of(field_name.upper()) if field_name in self._names else None, field_name, False

    def __call__(self) -> dict[str, Any]:
        found = {name: secret_of(name.upper()) for name in self._names}
        return {name: value for name, value in found.items() if value is not None}


def given(name: str) -> bool:
    """Whether the environment has the variable `name`, or a file for it."""
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


def secret_of(name: str) -> str | None:
    """What the file for `name` holds, but for line ends after it; None where there is none.

    Raises SettingsError where it cannot be read, holds nothing, or the value is given as well.
    """
    path = os.environ.get(f"{name}_FILE")
    if not path:
        return None
    if os.environ.get(name):
        raise SettingsError(f"{name} and {name}_FILE are both given: which of them counts?")
    try:
        value = Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise SettingsError(f"{name}_FILE: {path}: {reason}") from None
    if not value:
        raise SettingsError(f"{name}_FILE: {path}: is empty")
    return value
