from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import unquote

from checks.addresses import BeginsTls, dns_url, split_resolver
from checks.probes.dns.records import normal_record
from checks.probes.dns.spec import DnsSpec, parse_dns
from checks.probes.target import BadAddressError
from core.errors import PrivateAddress, ValidationFailed
from monitors.types.base import MonitorType, Origin, Permits
from monitors.types.content import TEXT_RULES, ContentSettings
from monitors.types.settings import MonitorConfig, Setting

MAX_RECORDS, MAX_RECORD = 16, 4_096
_QUERY = re.compile(r"(?:dns:(?://([^/?#\s]+)/)?)?([^/?#\s:]+)(?:\?type=([a-z0-9]+))?", re.IGNORECASE)
_PRESENTED = re.compile(r"[ -~\n]+")


class DnsSettings(ContentSettings, frozen=True, kw_only=True):
    records: Annotated[
        tuple[str, ...] | None,
        Setting(
            description="The exact set of expected records, in any order; null: any.",
            label="Expected records",
            help="One per line; other records fail the check. Empty: any records.",
            placeholder="any records",
            position=60,
            section="target",
            max_length=MAX_RECORDS,
            item_max_length=MAX_RECORD,
            public=True,
        ),
    ] = None


class Dns(MonitorType):
    name = "dns"
    label = "DNS"
    notes_changes = True
    icon = "network"
    description = "Looks up records of a name, and may compare them."
    schemes = ("dns",)
    example = "dns:shop.example?type=MX"
    takes_host = True
    url_label = "Domain name"
    parts = ("record_type", "resolver")
    helps = {  # noqa: RUF012
        "url": "The name to look up.",
        "name": "Empty: the name and the type.",
        "slow_ms": "An answer that takes this long counts as slow.",
    }
    settings = DnsSettings
    unasked = frozenset({"check_ssl", "request_body", "request_body_encoding"})
    rule_types = TEXT_RULES
    rules_help = "Optional: what the records must contain, or must not contain. Rules see sorted records, one per line."
    max_body_bytes = 0

    def parse(self, url: str) -> Origin:
        return "dns", parse_dns(url).name, 0

    def split(self, text: str) -> dict[str, str]:
        found = _QUERY.fullmatch(text)
        if found is None:
            return {"url": text}
        parts = {"url": unquote(found[2]), "record_type": (found[3] or "").upper(), "resolver": found[1] or ""}
        return {name: value for name, value in parts.items() if value}

    def complete(self, parts: Mapping[str, str], begins_tls: BeginsTls) -> str:
        name, resolver = parts["url"], parts["resolver"]
        if not name or name[:4].lower() == "dns:":
            return name
        server = split_resolver(resolver) if resolver else (None, None)
        if server is None:
            raise ValidationFailed("must be an IP address, with :port unless it is 53.", field="resolver")
        return dns_url(name, parts["record_type"] or "A", server=server[0], port=server[1])

    def title(self, url: str) -> str | None:
        try:
            target = parse_dns(url)
        except BadAddressError:
            return None
        return f"{target.name} {target.record_type}"

    def check_target(self, config: MonitorConfig, permits_host: Permits) -> None:
        # The name is only looked up. What is connected to is its resolver.
        super().check_target(config, lambda _: True)
        target = parse_dns(config.url)
        if target.server is not None and not permits_host(target.server):
            raise PrivateAddress(
                "names a private or reserved address as its resolver, which Pulsekeeper does not ask.", field="url"
            )
        for index, rule in enumerate(config["content_rules"]):
            if rule.value and not _PRESENTED.fullmatch(rule.value):
                raise ValidationFailed(
                    "cannot match: records are shown in printable ASCII, other bytes as \\DDD, and names in Punycode.",
                    field=f"content_rules[{index}].value",
                )
        records = config["records"]
        if records is not None and not records:
            raise ValidationFailed("must name at least one record, or be null.", field="records")
        for index, record in enumerate(records or ()):
            if record.splitlines() != [record] or record.isspace():
                raise ValidationFailed("must be one line, and not blank.", field=f"records[{index}]")
            try:
                normal_record(target.record_type, record)
            except ValueError as error:
                raise ValidationFailed(str(error), field=f"records[{index}]") from None

    def spec(self, config: MonitorConfig, *, run_id: str) -> DnsSpec:
        assert isinstance(config.own, DnsSettings)
        target = parse_dns(config.url)
        return DnsSpec(
            name=target.name,
            record_type=target.record_type,
            server=target.server,
            port=target.port,
            timeout_ms=config.timeout_ms,
            slow_ms=config.slow_ms,
            rules=config.own.probe_rules(),
            records=config.own.records,
        )

    def reproduce(self, config: MonitorConfig) -> str:
        target = parse_dns(config.url)
        server = "" if target.server is None else f" @{target.server} -p {target.port}"
        return f"dig{server} {shlex.quote(target.name)} {target.record_type}"
