"""The settings of one http check."""

from __future__ import annotations

from dataclasses import dataclass

from checks.spec import CheckSpec, ContentRule


@dataclass(frozen=True, slots=True)
class HttpSpec(CheckSpec):
    """One http check. `headers` have plaintext values, so a spec never shows them in its repr."""

    url: str
    method: str = "HEAD"
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    expect_status: int | None = None
    follow_redirects: bool = False
    check_ssl: bool = False
    tls_verify: bool = True
    ca_certificate: str | None = None  # PEM, trusted in addition to the system's
    rules: tuple[ContentRule, ...] = ()
    only_2xx: bool = False  # a scheduler's trigger: only 2xx is success

    def __repr__(self) -> str:
        return f"HttpSpec({self.method} {self.url})"
