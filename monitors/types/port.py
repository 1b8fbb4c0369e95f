from __future__ import annotations

import shlex
from collections.abc import Mapping

from checks.addresses import BeginsTls, split_server
from checks.probes.tcp.spec import TcpSpec, parse_tcp
from monitors.types.base import Origin, Permits, ServerType
from monitors.types.content import TEXT_RULES
from monitors.types.encryption import CA_FILE, TlsSettings, check_tls
from monitors.types.settings import MonitorConfig


class Port(ServerType):
    """A TCP port, with TLS for `tls://` addresses. With a body or rules, a dialogue of one question and one answer."""

    name = "port"
    label = "Port"
    icon = "plug"
    description = "Connects to a TCP port, with TLS too, and may compare what it sends."
    schemes = ("tcp", "tls")
    example = "tcp://db.example:5432"
    parts = ("port", "encryption")
    helps = {  # noqa: RUF012
        "url": "A name or an IP address.",
        "request_body": "Sent once connected. Lines end with LF; where CRLF is needed, use hex (0d0a).",
        "check_ssl": "Warns 30, 14, 7, 3 and 1 days before. An expired or wrong certificate is reported as an SSL "
        "problem, not as a failed connection. TLS only.",
    }
    settings = TlsSettings
    rule_types = TEXT_RULES
    rules_help = "Optional: what the server must send, or must not send."

    def parse(self, url: str) -> Origin:
        return parse_tcp(url)[0].origin

    def split(self, text: str) -> dict[str, str]:
        server = split_server(text, schemes=self.schemes)
        if server is None or not server.scheme:
            return super().split(text)
        found = {"url": server.host} | ({"port": server.port} if server.port else {})
        return found | {"encryption": (server.starttls or "tls") if server.scheme == "tls" else ""}

    def complete(self, parts: Mapping[str, str], begins_tls: BeginsTls) -> str:
        url, encryption = super().complete(parts, begins_tls), parts["encryption"]
        if not encryption or url == parts["url"]:
            return url
        url = f"tls{url.removeprefix('tcp')}"
        return url if encryption == "tls" else f"{url}?starttls={encryption}"

    def check_target(self, config: MonitorConfig, permits_host: Permits) -> None:
        super().check_target(config, permits_host)
        check_tls(config)

    def spec(self, config: MonitorConfig, *, run_id: str) -> TcpSpec:
        own, (server, starttls) = config.own, parse_tcp(config.url)
        assert isinstance(own, TlsSettings)
        return TcpSpec(
            host=server.host,
            port=server.port,
            tls=server.scheme == "tls",
            starttls=starttls,
            check_ssl=config.check_ssl,
            tls_verify=own.tls_verify,
            ca_certificate=own.ca_certificate,
            timeout_ms=config.timeout_ms,
            slow_ms=config.slow_ms,
            body=own.body_bytes(),
            rules=own.probe_rules(),
            as_hex=own.is_binary,
        )

    def reproduce(self, config: MonitorConfig) -> str:
        server, starttls = parse_tcp(config.url)
        host = f"[{server.host}]" if ":" in server.host else server.host
        if server.scheme == "tls":
            options = [f"openssl s_client -connect {shlex.quote(f'{host}:{server.port}')}"]
            if not server.is_literal:
                options.append(f"-servername {shlex.quote(server.host)}")
            if starttls:
                options.append(f"-starttls {starttls}")
            if config["tls_verify"]:
                options.append(
                    f"-verify_return_error -verify_{'ip' if server.is_literal else 'hostname'} {server.host}"
                )
                options += [f"-CAfile {CA_FILE}"] if config["ca_certificate"] is not None else []
            return " \\\n  ".join(options)
        return f"nc -v -w {max(1, config.timeout_ms // 1000)} {shlex.quote(server.host)} {server.port}"
