"""Section 9, "Versioning".

Elsewhere: "generated from the deployed backend" is tested in tests/api/test_openapi.py, which generates the document
and compares it with the committed and the served one.
"""

from __future__ import annotations

from django.test import Client

from tests.api.client import Api


def test_all_endpoints_live_under_v1(db: None) -> None:
    """All endpoints except the openapi document live under the path prefix /v1."""
    served = Api().get("/openapi.json").json
    assert served["paths"]
    assert all(path.startswith("/v1/") for path in served["paths"])
    # What is at /monitors is a page of the dashboard, for people who are signed in there.
    assert Client().get("/monitors", headers={"Authorization": "Bearer x"}).status_code == 302
    assert Client().get("/account.json").status_code == 404


def test_version_and_servers(db: None) -> None:
    """declares API version 1.0.0 and lists production and staging servers"""
    served = Api().get("/openapi.json").json
    assert served["info"]["version"] == "1.0.0"
    production, staging = served["servers"]
    assert ("production" in production["description"].lower(), "staging" in staging["description"].lower()) == (
        True,
        True,
    )
    assert production["url"] != staging["url"]


def test_served_at_openapi_json(db: None, api: Api) -> None:
    """served at /openapi.json"""
    assert Api().get("/openapi.json").json == api.get("/openapi.json").json
    assert Api().get("/v1/openapi.json").status == 404
