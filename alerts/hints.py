"""Enough of a channel's address to tell it apart, and not enough to use it. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

LONGEST = 200


def of_address(address: str) -> str:
    """`a…@example.com`"""
    local, _, domain = address.rpartition("@")
    return _short(f"{local[:1]}…@{domain}")


def of_url(url: str) -> str:
    """`https://hooks.example.com`: what follows the host is often the secret."""
    parts = urlsplit(url)
    return _short(f"{parts.scheme}://{parts.netloc}")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
