"""The one outbox: messages are rows that are claimed, sent, and marked afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from core.text import shorten

DETAIL_CHARS = 500


@dataclass(frozen=True, slots=True)
class SendResult:
    """The result of one attempt. `detail` is one line for a person, without secrets. `retry`: another may succeed."""

    delivered: bool
    detail: str
    retry: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", shorten(" ".join(self.detail.split()), limit=DETAIL_CHARS))
