"""Pages and static files are compressed if the client accepts gzip; API responses are not."""

from __future__ import annotations

import gzip

import pytest
from django.test import Client

from accounts.models import User
from tests.api.client import Api
from tests.factories import MonitorFactory

STYLES = "/static/pulsekeeper/base.css"


@pytest.mark.parametrize("path", ["/monitors", STYLES])
def test_in_gzip_if_the_client_accepts_it(web: Client, path: str) -> None:
    plain = web.get(path)
    packed = web.get(path, headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["Vary"]
    unpacked = gzip.decompress(packed.getvalue())
    assert len(packed.getvalue()) < len(unpacked) / 2
    if path == STYLES:
        assert unpacked == plain.getvalue()


@pytest.mark.django_db
def test_neither_a_part_nor_a_head_nor_what_is_known(client: Client) -> None:
    takes = {"Accept-Encoding": "gzip"}
    for answer, status in (
        (client.get(STYLES, headers={**takes, "Range": "bytes=0-9"}), 206),
        (client.head(STYLES, headers=takes), 200),
        (client.get(STYLES, headers={**takes, "If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"}), 304),
    ):
        assert answer.status_code == status
        assert "Content-Encoding" not in answer.headers
        answer.close()


def test_not_the_api(client: Client, user: User) -> None:
    MonitorFactory(owner=user)
    bearer = f"Bearer {Api.signed_in(user).token}"
    answer = client.get("/v1/monitors", headers={"Authorization": bearer, "Accept-Encoding": "gzip"})
    assert len(answer.content) > 200
    assert "Content-Encoding" not in answer.headers
