"""Settings of the verification of certificates, and the commands that repeat a check with them."""

from __future__ import annotations

import pytest
import trustme

from core.errors import ValidationFailed
from monitors import configuration, types
from monitors.types.settings import MonitorConfig

PEM = trustme.CA().cert_pem.bytes().decode()
KEY = trustme.CA().private_key_pem.bytes().decode()
HTTPS = {"url": "https://nas.example/"}
TLS = {"type": "port", "url": "tls://nas.example:993"}


def settle(**given: object) -> MonitorConfig:
    return configuration.complete(given, configuration.Limits(floor_sec=60, permits_host=lambda _: True))


@pytest.mark.parametrize("target", [HTTPS, TLS])
@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"tls_verify": False, "check_ssl": True}, "tls_verify", "with check_ssl"),
        ({"ca_certificate": "no PEM"}, "ca_certificate", "begin with -----BEGIN CERTIFICATE-----"),
        ({"ca_certificate": KEY}, "ca_certificate", "contains a key"),
        ({"ca_certificate": PEM + KEY}, "ca_certificate", "contains a key"),
        ({"ca_certificate": PEM * 9}, "ca_certificate", "at most 8 certificates, and has 9"),
        ({"ca_certificate": PEM + PEM[:200]}, "ca_certificate", "certificate 2 cannot be read"),
        ({"ca_certificate": f"# Főtanúsítvány\n{PEM}"}, "ca_certificate", "ASCII"),
        ({"ca_certificate": PEM + " " * 16_384}, "ca_certificate", "at most 16384 characters"),
    ],
)
def test_what_is_refused(target: dict[str, object], given: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        settle(**target, **given)
    assert refused.value.field == field
    assert words in refused.value.reason


@pytest.mark.parametrize("target", [HTTPS, TLS])
def test_a_change_of_url_keeps_both(target: dict[str, object]) -> None:
    stored = settle(**target, tls_verify=False, ca_certificate=f"# Our own\n{PEM * 8}")
    assert stored["ca_certificate"] == f"# Our own\n{PEM * 8}"
    given = {"url": str(target["url"]).replace("nas", "other")}
    changed = configuration.patch(stored, given, configuration.Limits(floor_sec=60, permits_host=lambda _: True))
    assert (changed["tls_verify"], changed["ca_certificate"]) == (False, stored["ca_certificate"])


def test_types_without_tls_store_them() -> None:
    stored = settle(type="heartbeat", tls_verify=False, check_ssl=True, ca_certificate=PEM)
    assert (stored["tls_verify"], stored["ca_certificate"]) == (False, PEM)


def test_the_command_verifies_as_the_check_does() -> None:
    def command(**given: object) -> str:
        config = settle(**given)
        return types.get(config.type).reproduce(config)

    for check_ssl in (False, True):
        assert "--insecure" not in command(**HTTPS, check_ssl=check_ssl)
    assert "--insecure" in command(**HTTPS, tls_verify=False)
    assert "--cacert ca-certificate.pem" in command(**HTTPS, ca_certificate=PEM)
    assert "--insecure" not in command(url="http://nas.example/", tls_verify=False)
    assert "-verify_return_error -verify_hostname nas.example" in command(**TLS)
    assert "-CAfile ca-certificate.pem" in command(**TLS, ca_certificate=PEM)
    assert "-verify" not in command(**TLS, tls_verify=False)
