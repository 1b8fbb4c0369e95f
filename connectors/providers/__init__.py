"""The built-in providers, by the names that the setting CONNECTORS maps path words to."""

from __future__ import annotations

from connectors.providers.backend import ProviderBackend
from connectors.providers.netlify import Netlify
from connectors.providers.vercel import Vercel

BACKENDS: dict[str, type[ProviderBackend]] = {backend.name: backend for backend in (Vercel, Netlify)}
