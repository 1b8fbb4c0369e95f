"""The built-in providers, by the names that the setting CONNECTORS maps path words to."""

from __future__ import annotations

from connectors.providers.backend import ProviderBackend
from connectors.providers.netlify import Netlify
from connectors.providers.vercel import Vercel

BACKENDS: dict[str, type[ProviderBackend]] = {backend.name: backend for backend in (Vercel, Netlify)}


def provider(name: str) -> ProviderBackend:
    """Return a new backend. Its requests together are limited in time, so create one per action."""
    return BACKENDS[name]()


def title_of(name: str) -> str:
    return BACKENDS[name].title
