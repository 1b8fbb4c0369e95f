"""IANA's list of RDAP registries and one registry, as a web server on loopback (RFC 9083, 9224).

The registry serves the top-level domains com, org and net. Its answers are set per domain, as scripts of
`tests.targets.server`; other domains do not exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.targets.server import Script, Seen, Site, TargetServer, answer


def domain_object(name: str, *events: tuple[str, Any], **more: Any) -> dict[str, Any]:
    """Return a domain object (RFC 9083) with these events, (action, date)."""
    return {
        "rdapConformance": ["rdap_level_0", "icann_rdap_response_profile_1"],
        "objectClassName": "domain",
        "handle": "2336799_DOMAIN_COM-VRSN",
        "ldhName": name.upper(),
        "links": [{"value": "x", "rel": "related", "href": "http://127.0.0.1:9/", "type": "application/rdap+json"}],
        "status": ["client delete prohibited"],
        "entities": [{"objectClassName": "entity", "handle": "292", "roles": ["registrar"]}],
        "events": [{"eventAction": action, "eventDate": date} for action, date in events],
        "secureDNS": {"delegationSigned": False},
        "nameservers": [{"objectClassName": "nameserver", "ldhName": "NS1.EXAMPLE.COM"}],
        **more,
    }


def told(document: Any, *headers: str, status: int = 200) -> Script:
    return [answer(status, json.dumps(document).encode(), "Content-Type: application/rdap+json", *headers)]


class Registry:
    """`answers` by domain, `bootstrap` instead of the list. `asked` counts lookups, `listed` fetches of the list."""

    def __init__(self) -> None:
        self.answers: dict[str, Script] = {}
        self.bootstrap: Script | None = None
        self._site: Site | None = None

    def expires(self, domain: str, date: Any) -> None:
        events = (("registration", "1995-08-14T04:00:00Z"), ("expiration", date), ("last changed", "2025-08-14"))
        self.answers[domain] = told(domain_object(domain, *events))

    @property
    def site(self) -> Site:
        assert self._site is not None
        return self._site

    @property
    def bootstrap_url(self) -> str:
        return self.site.url("/iana/")

    @property
    def asked(self) -> list[str]:
        """Return the domains in order of their lookups."""
        prefix = "/rdap/domain/"
        return [seen.path.removeprefix(prefix) for seen in self.site.seen if seen.path.startswith(prefix)]

    @property
    def listed(self) -> int:
        return sum(seen.path == "/iana/dns.json" for seen in self.site.seen)

    def list_of_registries(self) -> dict[str, Any]:
        return {
            "version": "1.0",
            "publication": "2026-01-01T00:00:00Z",
            "services": [[["com", "org", "net"], [self.site.url("/rdap/")]]],
        }

    def script_for(self, request: Seen) -> Script:
        if request.path == "/iana/dns.json":
            return self.bootstrap or told(self.list_of_registries())
        domain = request.path.removeprefix("/rdap/domain/")
        return self.answers.get(domain) or told({"errorCode": 404, "title": "Not Found"}, status=404)

    @classmethod
    @contextmanager
    def serving(cls) -> Iterator[Registry]:
        registry = cls()
        with TargetServer() as server:
            registry._site = server.serve(registry.script_for)
            yield registry
