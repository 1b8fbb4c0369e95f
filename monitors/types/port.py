from __future__ import annotations

import shlex

from checks.probes.tcp.spec import TcpSpec, parse_tcp
from monitors.types.base import MonitorType, Origin, Permits
from monitors.types.content import TEXT_RULES
from monitors.types.encryption import CA_FILE, TlsSettings, check_tls
from monitors.types.settings import MonitorConfig


class Port(MonitorType):
    """A TCP port, with TLS for `tls://` addresses. With a body or rules, a dialogue of one question and one answer."""

    name = "port"
    label = "Port"
    icon = "plug"
    description = "Connects to a TCP port, with TLS too, and may compare what it sends."
    schemes = ("tcp", "tls")
    example = "tcp://db.example:5432"
    helps = {  # noqa: RUF012
        "url": "tcp:// or tls:// with host and port. For a connection that begins in plain text: "
        "tls://mail.example:25?starttls=smtp, or imap, pop3, ftp, postgres.",
        "request_body": "Sent once connected. Lines end with LF; where CRLF is needed, use hex (0d0a).",
        "check_ssl": "An expired or wrong certificate is reported as such, not as a failed connection. tls:// only.",
    }
    settings = TlsSettings
    rule_types = TEXT_RULES
    rules_help = "Optional: what the server must send, or must not send."

    def parse(self, url: str) -> Origin:
        return parse_tcp(url)[0].origin

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
