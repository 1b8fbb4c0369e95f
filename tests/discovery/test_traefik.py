"""Rules of Traefik's routers."""

from __future__ import annotations

import pytest

from pulsekeeper.discover.traefik import addresses_of_labels, read_rule


def _hosts(count: int) -> str:
    return f"Host({','.join(f'`h{number}`' for number in range(count))})"


def _any(matcher: str, start: str) -> str:
    return " || ".join(f"{matcher}(`{start}{number}`)" for number in range(12))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("Host(`a.example`)", [("a.example", "/")]),
        ('Host("A.example")', [("a.example", "/")]),
        ("Host(`a.example`, `b.example`)", [("a.example", "/"), ("b.example", "/")]),
        (
            "Host(`a.example`) || Host(`b.example`) && PathPrefix(`/x`)",
            [("a.example", "/"), ("b.example", "/x")],
        ),
        (
            "(Host(`a.example`) || Host(`b.example`)) && PathPrefix(`/x`)",
            [("a.example", "/x"), ("b.example", "/x")],
        ),
        ("Host(`a.example`) && (Path(`/x`) || PathPrefix(`/y/`))", [("a.example", "/x"), ("a.example", "/y/")]),
        ("PathPrefix(`/api`) && PathPrefix(`/api/v1`) && Host(`a.example`)", [("a.example", "/api/v1")]),
        ("Host(`a.example`) && !PathPrefix(`/private`)", [("a.example", "/")]),
        ("!(Host(`b.example`) || Path(`/`)) && Host(`a.example`)", [("a.example", "/")]),
        ("Host(`a.example`) && Method(`GET`, `POST`)", [("a.example", "/")]),
        ("Host(`a.example`) || Host(`b.example`) && Headers(`X-A`, `1`)", [("a.example", "/")]),
        ("Host(`a.example`) && Path(`/ü x`)", [("a.example", "/%C3%BC%20x")]),
        ("Host(`a.example`) && Host(`b.example`) || Host(`c.example`)", [("c.example", "/")]),
    ],
)
def test_a_rule(rule: str, expected: list[tuple[str, str]]) -> None:
    assert read_rule(rule) == (expected, "")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("PathPrefix(`/x`)", "no host"),
        ("HostRegexp(`.+`)", "no host"),
        ("Host(`*.example`)", "no host"),
        ("Host(`a.example/x?y=`)", "no host"),
        ("Host(`u:p@a.example`)", "no host"),
        ("Host(`a.example`) && ClientIP(`10.0.0.0/8`)", "no host"),
        ("Host(`a.example`) && Path(`/{id:[0-9]+}`)", "no host"),
        ("Host(`a.example`) && Method(`POST`)", "no host"),
        ("", "cannot be read"),
        ("Host(`a.example`", "cannot be read"),
        ("Host(`a.example`) Host(`b.example`)", "cannot be read"),
        ("Host(`a.example`) &&", "cannot be read"),
        ("Host(a.example)", "cannot be read"),
        ("Port(`80`)", "unknown"),
        ("(" * 100 + "Host(`a.example`)" + ")" * 100, "too deeply"),
        ("!" * 1000 + "Host(`a.example`)", "too deeply"),
        ("Host(`a.example`) ||" * 400 + "Host(`b.example`)", "more than 4096 characters"),
        (f"({_any('Host', 'h')}) && ({_any('Path', '/')})", "more than 100 alternatives"),
        (f"{_hosts(40)} && {_hosts(40)}", "more than 100 alternatives"),
    ],
)
def test_a_rule_without_an_address(rule: str, words: str) -> None:
    found, problem = read_rule(rule)
    assert found == []
    assert words in problem


def test_labels_of_routers() -> None:
    labels = {
        "traefik.http.routers.web.rule": "Host(`a.example`)",
        "traefik.http.routers.web.entrypoints": "web",
        "traefik.http.routers.secure.rule": "Host(`a.example`) || Host(`b.example`)",
        "traefik.http.routers.secure.tls.certresolver": "le",
        "traefik.http.routers.plain.rule": "Host(`c.example`)",
        "traefik.http.routers.plain.tls": "false",
        "traefik.http.routers.entry.rule": "Host(`d.example`)",
        "traefik.http.routers.entry.entrypoints": "web, websecure",
        "traefik.http.routers.none.middlewares": "x",
        "traefik.http.routers.odd.rule": "Hosts",
        "traefik.tcp.routers.db.rule": "HostSNI(`db.example`)",
    }
    found, problems = addresses_of_labels(labels)
    assert set(found) == {"https://a.example/", "https://b.example/", "http://c.example/", "https://d.example/"}
    assert problems == [("traefik.http.routers.odd.rule", "cannot be read.")]
    assert addresses_of_labels({**labels, "traefik.enable": "false"}) == ([], [])
    many = {f"traefik.http.routers.r{number:02}.rule": f"Host(`h{number}`)" for number in range(60)}
    found, problems = addresses_of_labels(many)
    assert (len(found), problems) == (50, [("traefik.http.routers", "more than 50 rules; the others are skipped.")])
