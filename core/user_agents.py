"""Readable names of user agents."""

from __future__ import annotations

# The first match wins: Edge and Opera contain Chrome too, and Chrome contains Safari.
_BROWSERS = {
    "Edg": "Edge",
    "OPR": "Opera",
    "Firefox": "Firefox",
    "Chrome": "Chrome",
    "Safari": "Safari",
    "curl": "curl",
}
_SYSTEMS = {
    "iPhone": "iPhone",
    "iPad": "iPad",
    "Android": "Android",
    "Windows": "Windows",
    "Mac OS": "macOS",
    "CrOS": "ChromeOS",
    "Linux": "Linux",
}


def name_of(user_agent: str) -> str:
    """Return browser and system, or the beginning of an unknown user agent."""
    browser = next((name for word, name in _BROWSERS.items() if word in user_agent), "")
    system = next((name for word, name in _SYSTEMS.items() if word in user_agent), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or user_agent[:60] or "An unknown browser"
