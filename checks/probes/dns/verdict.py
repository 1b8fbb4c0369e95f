"""The failure of a complete reply. Pure."""

from __future__ import annotations

from collections.abc import Collection

import dns.flags
from dns.rcode import NOERROR, NXDOMAIN, REFUSED, SERVFAIL

from checks.probes.dns.message import AliasLoop, Found, Reply, find_records
from checks.probes.dns.records import kept_set, normal_form, normal_records
from checks.probes.dns.spec import DnsSpec
from checks.probes.dns.wire import MalformedReply
from checks.spec import CheckOutcome, ReasonCode
from checks.verdict import Failure, broken_text_rule
from core.text import quote, shorten

_NAME_CHARS = 90
_SHOWN_RECORDS, _RECORD_CHARS = 2, 40  # of those that are missing, and of those that are too many
_RCODE_FAULTS = {
    NXDOMAIN: "The name {name} does not exist; check its spelling and its DNS records.",
    SERVFAIL: "The name server failed to answer for {name} (SERVFAIL); check the zone's name servers and its DNSSEC.",
    REFUSED: "The name server refused to answer for {name} (REFUSED); check that it serves the zone, and whom.",
}
_OTHER_RCODE = "The name server answered for {name} with the error {rcode}; check its configuration."


def find_failure(spec: DnsSpec, reply: Reply, outcome: CheckOutcome) -> Failure | None:
    """Judge the reply. Where any set of records passes, the outcome gets the one that came."""
    name = shorten(spec.name, limit=_NAME_CHARS)
    if reply.rcode != NOERROR:
        fault = _RCODE_FAULTS.get(reply.rcode, _OTHER_RCODE)  # type: ignore[call-overload]  # an int is as good
        detail = fault.format(name=name, rcode=reply.rcode_name)
        # A forwarding name server in our own network also returns these while it cannot reach other servers.
        return Failure(ReasonCode.DNS_FAILURE, detail, by_network=reply.rcode in (SERVFAIL, REFUSED))
    if reply.is_truncated:
        return _dns_failure("The name server cut its answer short by TCP too; check it.")
    try:
        found = find_records(reply, spec.name, spec.record_type)
    except MalformedReply as error:
        return _dns_failure(f"The name server's answer {error}; check the server, and what changes its answers.")
    except AliasLoop:
        return _dns_failure(f"The aliases of {name} lead in a circle; correct its CNAME records.")
    if not found.records:
        return _dns_failure(_explain_absence(spec, name, reply, found))
    records = frozenset(map(normal_form, found.records))
    if spec.records is None:
        outcome.answer = kept_set(records)
    if spec.rules:
        text = "\n".join(sorted({record.presentation() for record in found.records}))
        for rule in spec.rules:
            if fault := broken_text_rule(rule, text, where="The answer", look="check the zone, or the rule"):
                return Failure(ReasonCode.CONTENT_FAILURE, fault)
    if spec.records is not None:
        return _compare(records, normal_records(spec.record_type, spec.records))
    return None


def _explain_absence(spec: DnsSpec, name: str, reply: Reply, found: Found) -> str:
    record = f"{spec.record_type} record"
    if not reply.flags & (dns.flags.AA | dns.flags.RA):
        return f"The name server neither serves {name} nor looks it up elsewhere; ask one that does either."
    if found.alias is not None:
        alias = shorten(found.alias.removesuffix(".") or ".", limit=_NAME_CHARS)
        return f"{name} is an alias of {alias}, and the answer has no {record} for it; add one, or correct the alias."
    return f"The name {name} has no {record}; add one to its zone, or check the type."


def _compare(records: Collection[str], expected: Collection[str]) -> Failure | None:
    missing, extra = sorted(set(expected) - set(records)), sorted(set(records) - set(expected))
    faults = [f"{what} {_shown(texts)}" for what, texts in (("missing", missing), ("extra", extra)) if texts]
    if not faults:
        return None
    return Failure(
        ReasonCode.CONTENT_FAILURE, f"The records differ: {'; '.join(faults)}; check the zone, or the expected records."
    )


def _shown(texts: list[str]) -> str:
    shown = ", ".join(quote(text, limit=_RECORD_CHARS) for text in texts[:_SHOWN_RECORDS])
    return shown if len(texts) <= _SHOWN_RECORDS else f"{shown} and {len(texts) - _SHOWN_RECORDS} more"


def _dns_failure(detail: str) -> Failure:
    return Failure(ReasonCode.DNS_FAILURE, detail)
