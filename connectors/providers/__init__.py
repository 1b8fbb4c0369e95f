"""The providers that are built in, by the names that `CONNECTORS` gives path words to."""

from __future__ import annotations

from connectors.providers.backend import ProviderBackend
from connectors.providers.base import Provider
from connectors.providers.netlify import Netlify
from connectors.providers.vercel import Vercel

BACKENDS: dict[str, type[ProviderBackend]] = {backend.name: backend for backend in (Vercel, Netlify)}


def provider(name: str) -> Provider:
    return BACKENDS[name]()


def title_of(name: str) -> str:
    """As people call it."""
    return BACKENDS[name].title
