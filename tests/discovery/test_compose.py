"""Services of Compose files."""

from __future__ import annotations

from textwrap import dedent

import pytest

from pulsekeeper.discover.compose import list_compose
from pulsekeeper.discover.labels import Listing
from pulsekeeper.manifest.problems import InvalidManifest
from pulsekeeper.manifest.yaml_reader import read


def listed(text: str, **variables: str) -> Listing:
    return list_compose(read(dedent(text).encode()), traefik=True, variables=variables)


def test_labels_are_a_map_or_a_list() -> None:
    listing = listed(
        """\
        name: shop
        services:
          web:
            image: nginx
            labels:
              pulsekeeper.url: https://shop.example/
              pulsekeeper.check_ssl: true
              pulsekeeper.expect_status: 204
              other: ${UNSET}
          api:
            labels: ["pulsekeeper.url=https://api.example/?a=b", "flag"]
            deploy:
              labels: {pulsekeeper.name: API}
          router:
            labels:
              - traefik.http.routers.r.rule=Host(`r.example`)
          db:
        """.replace("db:", "db: {}")
    )
    assert [(one.name, dict(one.labels), list(one.addresses)) for one in listing.objects] == [
        (
            "shop/web",
            {
                "pulsekeeper.url": "https://shop.example/",
                "pulsekeeper.check_ssl": "true",
                "pulsekeeper.expect_status": "204",
            },
            [],
        ),
        ("shop/api", {"pulsekeeper.url": "https://api.example/?a=b", "pulsekeeper.name": "API"}, []),
        ("shop/router", {"traefik.http.routers.r.rule": "Host(`r.example`)"}, ["http://r.example/"]),
        ("shop/db", {}, []),
    ]
    assert (listing.complaints, listing.gaps) == ([], [])


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("https://${HOST}/", "https://shop.example/"),
        ("https://$HOST/", "https://shop.example/"),
        ("${HOST:-x}", "shop.example"),
        ("${EMPTY:-x}", "x"),
        ("${EMPTY-x}", ""),
        ("${OTHER-x}", "x"),
        ("${OTHER:-}", ""),
        ("${HOST:?needed}", "shop.example"),
        ("${HOST:+x}", "x"),
        ("${OTHER+x}", ""),
        ("a$$b", "a$b"),
        ("$${HOST}", "${HOST}"),
    ],
)
def test_variables_that_are_given(written: str, expected: str) -> None:
    text = f"services: {{web: {{labels: {{pulsekeeper.url: '{written}'}}}}}}"
    (one,) = listed(text, HOST="shop.example", EMPTY="").objects
    assert one.labels["pulsekeeper.url"] == expected


@pytest.mark.parametrize("written", ["${HOME}", "$PULSEKEEPER_TOKEN", "${HOST:?no}", "a$", "${}", "${A:-${B}}", "${A"])
def test_other_variables_are_reported_and_not_read(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULSEKEEPER_TOKEN", "hunter2")
    listing = listed(
        f"""\
        services:
          web: {{labels: {{pulsekeeper.url: 'https://x.example/{written}'}}}}
          api: {{labels: {{pulsekeeper.url: 'https://y.example/'}}}}
        """
    )
    (complaint,) = listing.complaints
    assert str(complaint).startswith("service web: pulsekeeper.url: ")
    assert "hunter2" not in str(complaint)
    assert listing.gaps
    assert [dict(one.labels) for one in listing.objects] == [{}, {"pulsekeeper.url": "https://y.example/"}]


def test_what_is_not_supported_prevents_removals() -> None:
    listing = listed(
        """\
        include: [other.yaml]
        services:
          web: {extends: {file: base.yaml, service: web}, labels: {pulsekeeper.url: 'https://x.example/'}}
          api: {label_file: /etc/passwd}
        """
    )
    assert [str(complaint) for complaint in listing.complaints] == [
        "include: is not supported: discover from each file, with its own --source.",
        "service web: extends is not supported: write the labels into this file.",
        "service api: label_file is not supported: write the labels into this file.",
    ]
    assert len(listing.gaps) == 3


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "services: []",
        "services: {web: x}",
        "services: {web: {labels: x}}",
        "services: {web: {labels: [1]}}",
        "services: {web: {labels: {a: [x]}}}",
        "services: {web: {labels: !reset {}}}",
    ],
)
def test_files_that_are_no_compose_files(text: str) -> None:
    with pytest.raises(InvalidManifest):
        listed(text)
