"""The built-in providers, by the names that the setting CONNECTORS maps path words to."""

from __future__ import annotations

from connectors.providers.backend import ProviderBackend
from connectors.providers.netlify import Netlify
from connectors.providers.vercel import Vercel
from core.registry import Registry

BACKENDS: Registry[type[ProviderBackend]] = Registry((Vercel, Netlify))
