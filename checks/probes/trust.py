"""The authorities that TLS connections trust: the system's, and in addition those of one monitor.

A folder in OpenSSL's format is read one certificate at a time, on demand, while a file is parsed completely. So a check
with its own authorities costs little, and shares nothing with others.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import threading
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.utils import CryptographyDeprecationWarning

_folders: dict[str, tuple[tempfile.TemporaryDirectory[str], int]] = {}  # by file, with the number of certificates
_lock = threading.Lock()


def trusted_folder(ca_file: str) -> str:
    """Return a folder with the certificates of a PEM file, named as OpenSSL looks them up. Raises OSError.

    It is made again if something removed old temporary files: without them, targets would seem to be down.
    """
    with _lock:
        folder, number = _folders.get(ca_file, (None, 0))
        if folder is not None:
            with suppress(FileNotFoundError):
                if sum(1 for _ in Path(folder.name).iterdir()) == number:
                    return folder.name
            folder.cleanup()
        folder = tempfile.TemporaryDirectory(prefix="pulsekeeper-trust-")  # removed when the process ends
        _folders[ca_file] = folder, _fill(Path(folder.name), ca_file)
        return folder.name


def _fill(folder: Path, ca_file: str) -> int:
    """Write the certificates, and return their number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)  # old authorities have odd serial numbers
        try:
            certificates = x509.load_pem_x509_certificates(Path(ca_file).read_bytes())
        except ValueError as error:
            raise OSError(f"{ca_file} cannot be read: {error}") from error
        numbers: Counter[str] = Counter()
        for certificate in certificates:
            try:
                name = f"{_name_hash(certificate.subject):08x}"
            except ValueError:  # a name outside the rules; its certificate is not trusted here
                continue
            (folder / f"{name}.{numbers[name]}").write_bytes(certificate.public_bytes(Encoding.PEM))
            numbers[name] += 1
    return numbers.total()


def _name_hash(name: x509.Name) -> int:
    """Return X509_NAME_hash of OpenSSL: of the name in UTF-8, in lower case, with single spaces."""
    encoded = b""
    for rdn in name.rdns:
        parts = [
            x509.NameAttribute(part.oid, _canonical(part.value), _type=x509.name._ASN1Type.UTF8String)
            for part in rdn
            if isinstance(part.value, str)
        ]
        der = x509.Name([x509.RelativeDistinguishedName(parts)]).public_bytes()
        encoded += der[2 if der[1] < 0x80 else 2 + (der[1] & 0x7F) :]
    return int.from_bytes(hashlib.sha1(encoded, usedforsecurity=False).digest()[:4], "little")


def _canonical(value: str) -> str:
    lower = "".join(char.lower() if char.isascii() else char for char in value)
    return re.sub(r"[ \t\n\v\f\r]+", " ", lower).strip(" ")
