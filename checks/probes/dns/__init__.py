"""The dns protocol: one question to a name server, and the set of records in its answer."""

from checks.probes.dns.records import normal_record
from checks.probes.dns.spec import RECORD_TYPES, DnsSpec, DnsTarget, parse_dns

__all__ = ["RECORD_TYPES", "DnsSpec", "DnsTarget", "normal_record", "parse_dns"]
