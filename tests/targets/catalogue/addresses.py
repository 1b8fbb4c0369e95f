"""Names, address families, and addresses that are not probed."""

from __future__ import annotations

from tests.targets.catalogue.case import Closed, Full, Group, Place
from tests.targets.names import Fault, Name
from tests.targets.server import Script, answer, redirect

GROUP = Group("Names, addresses and the egress guard")
up, slow, down = GROUP.up, GROUP.slow, GROUP.down

OK: Script = [answer(200, b"hello")]
V4, V6 = ("127.0.0.1",), ("::1",)

names: tuple[tuple[str, str, Name], ...] = (
    ("a-alone", "Has an IPv4 address only.", Name(V4)),
    ("aaaa-silent", "Has servers that never answer for IPv6.", Name(V4, Fault.SILENCE)),
    ("aaaa-failing", "Has servers that fail for IPv6.", Name(V4, Fault.SERVFAIL)),
    ("aaaa-denied", "Has servers that deny the name for IPv6.", Name(V4, Fault.NXDOMAIN)),
    ("truncated", "Has an answer that comes over TCP only.", Name(V4, truncated=True)),
    ("no-ttl", "Has an answer that must not be kept.", Name(V4, ttl=0)),
    (
        "many",
        "Has thirty addresses, and all but one refuse.",
        Name(("127.0.0.1", *(f"127.0.1.{n}" for n in range(1, 30)))),
    ),
    ("delayed", "Has servers that take 0.2 s.", Name(V4, seconds=0.2)),
    ("mixed-guard", "Has a private address and one that may be probed.", Name(("10.0.0.1", "127.0.0.1"))),
    ("under_score", "Has a name with an underscore.", Name(V4)),
)
for name, about, said in names:
    host = f"{name}.names.test"
    up(f"dns-{name}", about, Place(OK, name=host), zone={host: said})
up(
    "dns-alias",
    "Has an alias of an alias.",
    Place(OK, name="alias.names.test"),
    zone={
        "alias.names.test": Name(alias="other.names.test"),
        "other.names.test": Name(alias="real.names.test"),
        "real.names.test": Name(V4),
    },
)
up(
    "dns-trailing-dot",
    "Is named with a dot at the end.",
    Place(OK, name="dot.names.test."),
    zone={"dot.names.test": Name(V4)},
)
up("dns-upper-case", "Is named in capitals.", Place(OK, name="UPPER.names.test"), zone={"upper.names.test": Name(V4)})
up(
    "dns-international",
    "Has a non-ASCII name.",
    Place(OK, name="grün.names.test"),
    zone={"xn--grn-ioa.names.test": Name(V4)},
)
up("dns-localhost", "Is localhost.", Place(OK, name="localhost"))
slow(
    "dns-slow",
    "Has servers that take 0.5 s, which counts as latency.",
    Place(OK, name="slow.names.test"),
    zone={"slow.names.test": Name(V4, seconds=0.5)},
    slow_ms=400,
)

faults: tuple[tuple[str, str, Name | None, str], ...] = (
    ("unknown", "Has a name that does not exist.", None, "does not exist"),
    ("no-records", "Has a name without addresses.", Name(), "no address"),
    ("failing", "Has servers that fail.", Name(Fault.SERVFAIL, Fault.SERVFAIL), "refused or failed"),
    ("refusing", "Has servers that refuse.", Name(Fault.REFUSED, Fault.REFUSED), "refused or failed"),
    ("garbage", "Has servers that answer with garbage.", Name(Fault.GARBAGE, Fault.GARBAGE), "refused or failed"),
    ("dangling", "Has an alias of a name that does not exist.", Name(alias="nothing.names.test"), "does not exist"),
    ("circle", "Has an alias of itself.", Name(alias="circle.names.test"), "names.test"),
)
for name, about, fault, words in faults:
    host = f"{name}.names.test"
    down(f"dns-{name}", about, Place(OK, name=host), "dns_failure", words, zone={} if fault is None else {host: fault})
down(
    "dns-other-id",
    "Has servers that answer another question.",
    Place(OK, name="other-id.names.test"),
    "timeout",
    "name servers gave no answer",
    zone={"other-id.names.test": Name(Fault.OTHER_ID, Fault.OTHER_ID)},
    timeout_ms=1000,
)

up("ipv4", "Listens on IPv4.", Place(OK, host="127.0.0.1"))
up("ipv6", "Listens on IPv6.", Place(OK, host="::1"))
up(
    "ipv6-name",
    "Has an IPv6 address only.",
    Place(OK, host="::1", name="six.names.test"),
    zone={"six.names.test": Name((), V6)},
)
up(
    "ipv6-name-a-silent",
    "Has servers that never answer for IPv4.",
    Place(OK, host="::1", name="lonely.names.test"),
    zone={"lonely.names.test": Name(Fault.SILENCE, V6)},
)
up(
    "ipv6-mapped",
    "Has an IPv4 address in IPv6 form.",
    Place(OK, name="mapped.names.test"),
    zone={"mapped.names.test": Name((), ("::ffff:127.0.0.1",))},
)
up(
    "ipv6-refuses",
    "Refuses over IPv6 and answers over IPv4.",
    {"main": Place(OK, name="half.names.test"), "dead": Place(Closed(), host="::1", port_of="main")},
    zone={"half.names.test": Name(V4, V6)},
)
up(
    "ipv6-dead",
    "Answers no connect over IPv6, and answers over IPv4.",
    {"main": Place(OK, name="eyeballs.names.test"), "dead": Place(Full(), host="::1", port_of="main")},
    zone={"eyeballs.names.test": Name(V4, V6)},
)
up(
    "ipv4-refuses",
    "Refuses over IPv4 and answers over IPv6.",
    {"main": Place(OK, host="::1", name="six-half.names.test"), "dead": Place(Closed(), port_of="main")},
    zone={"six-half.names.test": Name(V4, V6)},
)
down(
    "all-refuse",
    "Refuses at every address.",
    {"main": Place(Closed(), name="none.names.test"), "dead": Place(Closed(), host="::1", port_of="main")},
    "connection_failure",
    "refused",
    zone={"none.names.test": Name(V4, V6)},
)
down(
    "all-dead",
    "Answers no connect at any address.",
    {"main": Place(Full(), name="dead.names.test"), "dead": Place(Full(), host="::1", port_of="main")},
    "timeout",
    "No result within 1000 ms",  # on a busy machine the lookup alone may take as long
    zone={"dead.names.test": Name(V4, V6)},
    timeout_ms=1000,
)

guarded: tuple[tuple[str, str, Name], ...] = (
    ("private", "a private address", Name(("10.0.0.1",))),
    ("metadata", "the address of cloud metadata", Name(("169.254.169.254",))),
    ("carrier", "an address of carrier-grade NAT", Name(("100.64.0.1",))),
    ("multicast", "a multicast address", Name(("224.0.0.1",))),
    ("broadcast", "the broadcast address", Name(("255.255.255.255",))),
    ("zero", "0.0.0.0", Name(("0.0.0.0",))),
    ("documentation", "an address of documentation", Name(("192.0.2.1",))),
    ("unique-local", "a unique local IPv6 address", Name((), ("fd00::1",))),
    ("link-local", "a link-local IPv6 address", Name((), ("fe80::1",))),
    ("unspecified", "the unspecified IPv6 address", Name((), ("::",))),
    ("mapped", "a private address in IPv6 form", Name((), ("::ffff:10.0.0.1",))),
    ("nat64", "a private address behind NAT64", Name((), ("64:ff9b::10.0.0.1",))),
    ("6to4", "a private address in 6to4 form", Name((), ("2002:a00:1::1",))),
    ("both", "private addresses of both families", Name(("192.168.1.1",), ("fd00::1",))),
    ("alias", "an alias of a private name", Name(alias="private.guard.test")),
)
for name, about, said in guarded:
    host = f"{name}.guard.test"
    down(
        f"guard-{name}",
        f"Has a name that resolves to {about}.",
        Place(OK, name=host),
        "blocked_target",
        "private or reserved",
        zone={host: said},
    )
for name, location in {
    "literal": "http://10.0.0.1/",
    "metadata": "http://169.254.169.254/latest/meta-data/",
    "decimal": "http://167772161/",
    "hex": "http://0x0a000001/",
    "octal": "http://012.0.0.1/",
    "short": "http://192.168.1/",
    "ipv6": "http://[fd00::1]/",
    "mapped": "http://[::ffff:10.0.0.1]/",
    "name": "http://target.guard.test/",
    "https": "https://10.0.0.1/",
}.items():
    down(
        f"guard-redirect-{name}",
        f"Redirects to {location}, which is private.",
        redirect(location),
        "blocked_target",
        "private or reserved",
        zone={"target.guard.test": Name(("10.0.0.1",))} if name == "name" else {},
        follow_redirects=True,
    )
