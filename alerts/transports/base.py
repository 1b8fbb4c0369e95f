"""What comes of trying to send. Plain Python."""

from __future__ import annotations

from dataclasses import dataclass

from checks.wording import shorten

DETAIL_CHARS = 500


@dataclass(frozen=True, slots=True)
class Outcome:
    """`detail` is what came back: one line for a person, without secrets. `retry` where trying again may help."""

    delivered: bool
    detail: str
    retry: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", shorten(" ".join(self.detail.split()), limit=DETAIL_CHARS))
