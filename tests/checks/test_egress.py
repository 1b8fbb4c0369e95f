from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.egress import EgressGuard, literal_address, parse_networks

REFUSED = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.127.255.255 127.0.0.1 127.255.255.254
    169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.9 192.0.2.1 192.31.196.1 192.52.193.1 192.88.99.1
    192.168.0.1 192.175.48.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255
    240.0.0.1 255.255.255.255
    :: ::1 ::8.8.8.8 ::ffff:10.0.0.1 ::ffff:127.0.0.1 ::ffff:100.64.0.1 ::ffff:0:8.8.8.8
    64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b:1::1 64:ff9b:1::8.8.8.8 100::1 100:0:0:1::1
    2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:2::1 2001:3::1 2001:4:112::1 2001:10::1 2001:20::1
    2001:30::1 2001:db8::1 2002:0a00:0001:: 2002:7f00:0001::1 2002:c0a8:0101:: 2620:4f:8000::1 3fff::1
    3fff:fff::1 4000::1 5f00::1 fc00::1 fd00::1 fe80::1 febf::1 fec0::1 feff::1 ff02::1 ff0e::1
    fe80::1%eth0
"""
PERMITTED = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1
    169.253.255.255 172.15.255.255 172.32.0.0 192.0.1.1 192.167.255.255 192.169.0.0 198.17.255.255
    198.20.0.0 223.255.255.255
    2606:4700:4700::1111 2001:200::1 2001:4860:4860::8888 2a00:1450:4001::1 ::ffff:8.8.8.8
    64:ff9b::8.8.8.8 2002:0808:0808::1 3ffe::1
"""


@pytest.mark.parametrize("text", REFUSED.split())
def test_refuses(text: str) -> None:
    assert not EgressGuard().permits(ip_address(text))


@pytest.mark.parametrize("text", PERMITTED.split())
def test_permits(text: str) -> None:
    assert EgressGuard().permits(ip_address(text))


@given(st.ip_addresses(v=4))
def test_judges_the_ipv4_address_inside(address: IPv4Address) -> None:
    """Mapped, NAT64 and 6to4 forms are judged as the address itself."""
    guard, number = EgressGuard(), int(address)
    for form in (0xFFFF << 32 | number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80):
        assert guard.permits(IPv6Address(form)) == guard.permits(address)


@given(st.ip_addresses(v=4))
def test_refuses_all_that_python_calls_private(address: IPv4Address) -> None:
    if address.is_private or address.is_multicast or address.is_reserved:
        assert not EgressGuard().permits(address)


@pytest.mark.parametrize(
    ("address", "permitted"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::ffff:127.0.0.1", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("64:ff9b::127.0.0.1", False),
        ("2002:7f00:0001::", False),
        ("::127.0.0.1", False),
        ("fd00::1", False),
    ],
)
def test_allowed_networks_open_themselves_only(address: str, permitted: bool) -> None:
    guard = EgressGuard(parse_networks("127.0.0.0/8,::1/128"))
    assert guard.permits(ip_address(address)) is permitted


def test_parses_networks() -> None:
    assert [str(network) for network in parse_networks(" 10.0.0.0/8 ,fd00::/8,, 127.0.0.1")] == [
        "10.0.0.0/8",
        "fd00::/8",
        "127.0.0.1/32",
    ]
    assert parse_networks("") == ()


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0.0/33", "example.com", "10.0.0.0/8;fd00::/8"])
def test_names_the_network_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a network in CIDR form") as caught:
        parse_networks(f"127.0.0.0/8,{text}")
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("127.0.1", "127.0.0.1"),
        ("0x7f.0.0.1", "127.0.0.1"),
        ("0X7F000001", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("１２７.0.0.1", "127.0.0.1"),  # noqa: RUF001  full-width digits are the case
        ("127。0。0。1", "127.0.0.1"),
        ("①②⑦.1", "127.0.0.1"),
        ("%31%32%37.0.0.1", "127.0.0.1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("[fe80::1%25eth0]", "fe80::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("[::ffff:127.0.0.1]", "::ffff:7f00:1"),
        ("example.com", None),
        ("127.0.0.1.example.com", None),
        ("127..1", None),
        ("256.0.0.1", None),
        ("1.2.3.4.5", None),
        ("4294967296", None),
        ("089.0.0.1", None),
        ("0x7g", None),
        ("", None),
        (".", None),
        ("[]", None),
    ],
)
def test_knows_an_address_in_every_spelling(host: str, address: str | None) -> None:
    assert literal_address(host) == (None if address is None else ip_address(address))


@given(st.text())
def test_no_host_is_too_odd(host: str) -> None:
    literal_address(host)
