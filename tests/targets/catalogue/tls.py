"""TLS: certificates that are valid, invalid, or missing."""

from __future__ import annotations

from tests.targets.catalogue.case import Group, Place
from tests.targets.names import Name
from tests.targets.server import Listen, Reset, Script, Unasked, answer, redirect

GROUP = Group("TLS")
up, down = GROUP.up, GROUP.down

HERE = Name(("127.0.0.1",))
OK: Script = [answer(200, b"hello")]

up("tls-good", "Shows a good certificate for its address.", Place(OK, tls="good"), check_ssl=True)
up("tls-good-unwatched", "Shows a good certificate, without check_ssl.", Place(OK, tls="good"))
up("tls-1.2", "Speaks TLS 1.2 only.", Place(OK, tls="only_1_2"), check_ssl=True)
up("tls-1.3", "Speaks TLS 1.3 only.", Place(OK, tls="only_1_3"), check_ssl=True)
up(
    "tls-name",
    "Shows a good certificate for its name.",
    Place(OK, tls="good", name="www.tls.test"),
    zone={"www.tls.test": HERE},
    check_ssl=True,
)
up(
    "tls-wildcard",
    "Shows a certificate for all names of a domain.",
    Place(OK, tls="wildcard", name="a.wild.tls.test"),
    zone={"a.wild.tls.test": HERE},
    check_ssl=True,
)
up(
    "tls-sni",
    "Shows the right certificate to who names the host.",
    Place(OK, tls="by_name", name="named.tls.test"),
    zone={"named.tls.test": HERE},
    check_ssl=True,
)
up("tls-chain", "Shows a certificate with its intermediate.", Place(OK, tls="chain"), check_ssl=True)
up("tls-ipv6", "Shows a good certificate for its IPv6 address.", Place(OK, tls="good", host="::1"), check_ssl=True)

for name, about, context, words in (
    ("expired", "Shows a certificate that has expired.", "expired", "expired"),
    ("not-yet-valid", "Shows a certificate that is not valid yet.", "not_yet_valid", "not valid yet"),
    ("other-host", "Shows a certificate of another host.", "other_host", "another host name"),
    ("self-signed", "Shows a self-signed certificate.", "self_signed", "self-signed"),
    ("unknown-issuer", "Shows a certificate of an unknown authority.", "unknown_issuer", "issuer is unknown"),
    ("no-intermediate", "Leaves the intermediate certificate out.", "no_intermediate", "intermediate"),
    ("name-only", "Shows a certificate for a name to clients that connect to an address.", "name_only", "another"),
    ("old", "Speaks TLS 1.1 at most.", "old", "TLS"),
    ("only-dhe", "Exchanges keys only in a custom group (DHE).", "only_dhe", "TLS"),
):
    down(f"tls-{name}", about, Place(OK, tls=context), "tls_failure", "SSL problem: ", check_ssl=True)
    down(
        f"tls-{name}-unwatched",
        about.removesuffix(".") + ", without check_ssl.",
        Place(OK, tls=context),
        "connection_failure",
        words,
    )
down(
    "tls-wildcard-too-deep",
    "Shows a certificate for all names of a domain, one level too high.",
    Place(OK, tls="wildcard", name="a.b.wild.tls.test"),
    "tls_failure",
    "another host name",
    zone={"a.b.wild.tls.test": HERE},
    check_ssl=True,
)
handshakes: tuple[tuple[str, str, Script, str], ...] = (
    ("close", "Closes the connection at the handshake.", [Listen()], "during the TLS handshake"),
    ("reset", "Resets the connection at the handshake.", [Listen(), Reset()], "during the TLS handshake"),
    ("plain", "Answers the handshake in plain HTTP.", [Listen(), answer(400)], "does not speak TLS"),
    ("garbage", "Answers the handshake with random bytes.", [Listen(), bytes(range(200, 256))], "does not speak TLS"),
    (
        "alert",
        "Refuses every way of encryption.",
        [Listen(), b"\x15\x03\x03\x00\x02\x02\x28"],
        "no encryption in common",
    ),
    (
        "alert-name",
        "Refuses the name.",
        [Listen(), b"\x15\x03\x03\x00\x02\x02\x70"],
        "no certificate for this host name",
    ),
    (
        "alert-client",
        "Asks for a client certificate.",
        [Listen(), b"\x15\x03\x03\x00\x02\x02\x74"],
        "client certificate",
    ),
    (
        "alert-internal",
        "Answers the handshake with an internal error.",
        [Listen(), b"\x15\x03\x03\x00\x02\x02\x50"],
        "handshake failed",
    ),
)
for name, about, script, words in handshakes:
    down(f"tls-handshake-{name}", about, Place(Unasked(script), scheme="https"), "tls_failure", words, check_ssl=True)
down(
    "tls-reset-after",
    "Resets the connection after the handshake.",
    Place([Reset()], tls="good"),
    "connection_failure",
    "without an answer",
    check_ssl=True,
)
down(
    "tls-closed-after",
    "Closes the connection after the handshake.",
    Place([], tls="good"),
    "connection_failure",
    "without an answer",
    check_ssl=True,
)
down(
    "tls-500",
    "Answers 500 under a good certificate.",
    Place([answer(500)], tls="good"),
    "http_failure",
    "500",
    http_status=500,
    check_ssl=True,
)
down(
    "tls-asked-in-plain",
    "Speaks TLS where http is expected.",
    Place(OK, tls="good", scheme="http"),
    "connection_failure",
    "server",
)
down(
    "tls-redirect-to-expired",
    "Redirects to a host whose certificate has expired.",
    {"main": Place(redirect("@away@/")), "away": Place(OK, tls="expired")},
    "tls_failure",
    "expired",
    check_ssl=True,
    follow_redirects=True,
)
