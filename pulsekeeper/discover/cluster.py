"""Access to a Kubernetes cluster: the service account of a pod, or a kubeconfig."""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import urlsplit

from core.cli import UsageError
from pulsekeeper.discover.transport import Endpoint
from pulsekeeper.manifest.problems import InvalidManifest
from pulsekeeper.manifest.yaml_reader import MAX_BYTES, read

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_UNSUPPORTED = ("exec", "auth-provider", "username", "impersonate", "as")


def endpoint_of(
    environment: Mapping[str, str], *, file: str | None, context: str | None, account: Path = ACCOUNT
) -> Endpoint:
    """Return the cluster of a kubeconfig, or of the pod that this runs in. Raises UsageError.

    `file` or KUBECONFIG names the kubeconfig. Without them, a pod's service account is used, or ~/.kube/config.
    """
    named = file or environment.get("KUBECONFIG", "")
    if not named and context is None and environment.get("KUBERNETES_SERVICE_HOST") and (account / "token").exists():
        return _of_pod(environment, account)
    path = Path(named) if named else Path(environment.get("HOME", "/")) / ".kube" / "config"
    if ":" in named and not path.exists():
        raise UsageError("KUBECONFIG names several files; give one of them as --kubeconfig")
    return _of_kubeconfig(path, context)


def _of_pod(environment: Mapping[str, str], account: Path) -> Endpoint:
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError("KUBERNETES_SERVICE_PORT is invalid")
    try:
        tls = ssl.create_default_context(cafile=str(account / "ca.crt"))
    except (OSError, ssl.SSLError):
        raise UsageError(f"{account / 'ca.crt'} cannot be read") from None
    name = f"Kubernetes at {host}:{port}"
    return Endpoint(name=name, host=host, port=int(port), tls=tls, token=_token(account / "token"))


def _of_kubeconfig(path: Path, context: str | None) -> Endpoint:
    try:
        with path.open("rb") as opened:
            root = read(opened.read(MAX_BYTES + 1)).root
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; give --kubeconfig") from None
    except InvalidManifest as error:
        raise UsageError(error.problems[0].format(str(path))) from None
    config = _Config(root if isinstance(root, dict) else {}, path)
    name = context or config.root.get("current-context")
    if not isinstance(name, str) or not name:
        raise UsageError(f"{path} has no current-context; give --context")
    chosen = config.named("contexts", "context", name)
    cluster = config.named("clusters", "cluster", chosen.get("cluster"))
    user = config.named("users", "user", chosen["user"]) if chosen.get("user") else {}
    if "proxy-url" in cluster:
        raise UsageError(f"{path}: proxy-url is not supported")
    if found := [key for key in _UNSUPPORTED if user.get(key)]:
        raise UsageError(f"{path}: {found[0]} of a user is not supported: use a token or a client certificate")
    try:
        parts = urlsplit(str(cluster.get("server", "")))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        raise UsageError(f"{path}: server of the cluster is not a valid address")
    token = str(user.get("token") or "")
    if not token and user.get("tokenFile"):
        token = _token(config.folder / str(user["tokenFile"]))
    secure = parts.scheme == "https"
    if not secure and (token or user) and host not in ("localhost", "127.0.0.1", "::1"):
        raise UsageError(f"{path}: credentials are only sent to https, or to this machine")
    port = port or (443 if secure else 80)
    return Endpoint(
        name=f"Kubernetes at {host}:{port}",
        host=host,
        port=port,
        base=parts.path.rstrip("/"),
        tls=config.tls(cluster, user) if secure else None,
        server_name=str(cluster.get("tls-server-name") or ""),
        token=_checked(token, path) if token else "",
    )


class _Config:
    def __init__(self, root: dict[str, Any], path: Path) -> None:
        self.root, self.path, self.folder = root, path, path.parent

    def named(self, section: str, key: str, name: Any) -> dict[str, Any]:
        """Return an entry of a section. Raises UsageError."""
        for one in self.root.get(section) or []:
            if isinstance(one, dict) and one.get("name") == name and isinstance(one.get(key), dict):
                return dict(one[key])
        raise UsageError(f"{self.path}: {section} has no {name!r}")

    def tls(self, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
        """Return the context for a cluster, with the user's certificate. Raises UsageError."""
        context = ssl.create_default_context()
        try:
            with self._file(cluster, "certificate-authority") as authority:
                if authority is not None:
                    context = ssl.create_default_context(cafile=str(authority))
            if cluster.get("insecure-skip-tls-verify") is True:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with self._file(user, "client-certificate") as certificate, self._file(user, "client-key") as key:
                if certificate is not None:
                    context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError, TypeError, binascii.Error):
            raise UsageError(f"{self.path}: a certificate or key cannot be read") from None
        return context

    @contextmanager
    def _file(self, values: Mapping[str, Any], name: str) -> Iterator[Path | None]:
        """Yield the file of a value, or one with its data, which others cannot read and which is deleted after."""
        if data := values.get(f"{name}-data"):
            with NamedTemporaryFile() as file:
                file.write(base64.b64decode(str(data), validate=True))
                file.flush()
                yield Path(file.name)
        else:
            yield self.folder / str(values[name]) if values.get(name) else None


def _token(path: Path) -> str:
    try:
        return _checked(path.read_text("ascii", errors="replace"), path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def _checked(text: str, path: Path) -> str:
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise UsageError(f"{path} contains no valid token")
    return token
