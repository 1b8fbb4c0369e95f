"""Settings of the types that may connect over TLS."""

from __future__ import annotations

import re
import ssl
from typing import Annotated, Self

from core.errors import ValidationFailed
from monitors.types.base import MonitorType
from monitors.types.content import ContentSettings
from monitors.types.settings import MonitorConfig, Setting

MAX_CA_CERTIFICATE, MAX_CA_CERTIFICATES = 16_384, 8
CA_FILE = "ca-certificate.pem"  # of commands: the monitor's ca_certificate, saved
_LABEL = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----")


class TlsSettings(ContentSettings, frozen=True, kw_only=True):
    tls_verify: Annotated[
        bool,
        Setting(
            description="http types and port: false accepts any certificate. You are still warned before it expires. "
            "Cannot be false with check_ssl.",
            label="Verify the certificate",
            help="Off is unsafe: any certificate is accepted, so an attacker in the network can impersonate the server "
            "and read what is sent, and only the expiry is reported. For a private authority, enter its certificate "
            "below instead.",
            position=81,
        ),
    ] = True
    ca_certificate: Annotated[
        str | None,
        Setting(
            description="http types and port: PEM of one to eight certificates, trusted in addition to the system's.",
            label="CA certificate",
            help="Of a private authority, or a self-signed certificate: PEM (-----BEGIN CERTIFICATE-----), "
            "up to 8 certificates. Trusted by this monitor only, in addition to the public authorities.",
            position=82,
            max_length=MAX_CA_CERTIFICATE,
            multiline=True,
        ),
    ] = None

    def settle(self, kind: MonitorType) -> Self:
        settled = super().settle(kind)
        if self.ca_certificate is not None:
            _check_certificates(self.ca_certificate)
        return settled


def check_tls(config: MonitorConfig) -> None:
    """Raise ValidationFailed for settings that contradict each other."""
    if config.check_ssl and not config["tls_verify"]:
        raise ValidationFailed(
            "cannot be false with check_ssl: errors of a certificate that is not verified cannot be reported.",
            field="tls_verify",
        )


def _check_certificates(text: str) -> None:
    def refuse(reason: str) -> ValidationFailed:
        return ValidationFailed(reason, field="ca_certificate")

    if len(text) > MAX_CA_CERTIFICATE:
        raise refuse(f"must be at most {MAX_CA_CERTIFICATE} characters.")
    if not text.isascii():
        raise refuse("must be ASCII; remove the comments.")
    labels = _LABEL.findall(text)
    if any(label.endswith("KEY") for label in labels):
        raise refuse("contains a key; enter certificates only.")
    if not labels or set(labels) != {"CERTIFICATE"}:
        raise refuse("must be certificates in PEM, which begin with -----BEGIN CERTIFICATE-----.")
    if len(labels) > MAX_CA_CERTIFICATES:
        raise refuse(f"must have at most {MAX_CA_CERTIFICATES} certificates, and has {len(labels)}.")
    for number, block in enumerate(text.split("-----BEGIN CERTIFICATE-----")[1:], 1):
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=f"-----BEGIN CERTIFICATE-----{block}")
        except (ssl.SSLError, ValueError):
            raise refuse(f"certificate {number} cannot be read; copy it completely, with its last line.") from None
