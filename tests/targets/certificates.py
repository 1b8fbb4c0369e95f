"""Server contexts for this machine and a few test names, valid, or invalid in one way each."""

from __future__ import annotations

import base64
import datetime
import ssl
import warnings
from ipaddress import ip_address
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

NAMES = ("127.0.0.1", "::1", "localhost", "www.tls.test")
EXPIRED_AT = datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
GOOD_UNTIL = datetime.datetime(2031, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


class Certificates:
    """`ca_file`: the authority that probes must trust."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trusted = trustme.CA()
        self.ca_file = str(folder / "ca.pem")
        self._trusted.cert_pem.write_to_path(self.ca_file)

    def good(self) -> ssl.SSLContext:
        return _context(self._trusted.issue_cert(*NAMES, not_after=GOOD_UNTIL))

    def for_host(self, *names: str) -> ssl.SSLContext:
        return _context(self._trusted.issue_cert(*names, not_after=GOOD_UNTIL))

    def expired(self) -> ssl.SSLContext:
        start = EXPIRED_AT - datetime.timedelta(days=90)
        return _context(self._trusted.issue_cert(*NAMES, not_before=start, not_after=EXPIRED_AT))

    def other_host(self) -> ssl.SSLContext:
        return _context(self._trusted.issue_cert("other.example", not_after=GOOD_UNTIL))

    def unknown_issuer(self) -> ssl.SSLContext:
        return _context(trustme.CA().issue_cert(*NAMES, not_after=GOOD_UNTIL))

    def not_yet_valid(self) -> ssl.SSLContext:
        start = GOOD_UNTIL + datetime.timedelta(days=36_500)
        end = start + datetime.timedelta(days=90)
        return _context(self._trusted.issue_cert(*NAMES, not_before=start, not_after=end))

    def name_only(self) -> ssl.SSLContext:
        """A certificate without IP addresses, for clients that connect to an address."""
        return _context(self._trusted.issue_cert("localhost", not_after=GOOD_UNTIL))

    def wildcard(self) -> ssl.SSLContext:
        return _context(self._trusted.issue_cert("*.wild.tls.test", not_after=GOOD_UNTIL))

    def by_name(self) -> ssl.SSLContext:
        """The right certificate only for clients that send the host name (SNI)."""
        right = _context(self._trusted.issue_cert("named.tls.test", not_after=GOOD_UNTIL))
        context = self.other_host()

        def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            if name == "named.tls.test":
                connection.context = right

        context.sni_callback = choose
        return context

    def chain(self) -> ssl.SSLContext:
        return _context(self._trusted.create_child_ca().issue_cert(*NAMES, not_after=GOOD_UNTIL))

    def no_intermediate(self) -> ssl.SSLContext:
        leaf = self._trusted.create_child_ca().issue_cert(*NAMES, not_after=GOOD_UNTIL)
        file = self._folder / "no-intermediate.pem"
        file.write_bytes(leaf.private_key_pem.bytes() + leaf.cert_chain_pems[0].bytes())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def only_1_2(self) -> ssl.SSLContext:
        context = self.good()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context

    def only_1_3(self) -> ssl.SSLContext:
        context = self.good()
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    def only_dhe(self) -> ssl.SSLContext:
        """TLS 1.2 with a custom group for the key exchange."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._trusted.issue_cert(*NAMES, not_after=GOOD_UNTIL, key_type=trustme.KeyType.RSA).configure_cert(context)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("kDHE")
        group = b"\x30\x82\x01\x08\x02\x82\x01\x01" + (3 << 2046 | 3).to_bytes(257, "big") + b"\x02\x01\x02"
        file = self._folder / "group.pem"
        text = base64.encodebytes(group).decode()
        file.write_text(f"-----BEGIN DH PARAMETERS-----\n{text}-----END DH PARAMETERS-----\n")
        context.load_dh_params(str(file))
        return context

    def huge(self) -> ssl.SSLContext:
        return self.wordy("Huge", names=3_000)

    def old(self) -> ssl.SSLContext:
        context = self.good()
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # its deprecation is the point of the test
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        return context

    def self_signed(self) -> ssl.SSLContext:
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
        return self._self_signed(name, [x509.DNSName("localhost")], file="self-signed.pem")

    def wordy(self, text: str, *, names: int) -> ssl.SSLContext:
        """Subject and issuer are `text`, and the certificate has `names` names in addition to the right ones."""
        name = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, text)])
        others = [x509.DNSName(f"{number}.a-long-name-for-a-host-that-is-not-there.test") for number in range(names)]
        return self._self_signed(name, [*others, x509.DNSName("localhost")], file="wordy.pem")

    def _self_signed(self, name: x509.Name, alternatives: list[x509.DNSName], *, file: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(GOOD_UNTIL - datetime.timedelta(days=3650))
            .not_valid_after(GOOD_UNTIL)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), *alternatives]), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        path = self._folder / file
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


def _context(leaf: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    leaf.configure_cert(context)
    return context
