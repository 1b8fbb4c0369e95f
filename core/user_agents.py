"""What people call the programs that ask."""

from __future__ import annotations

# The first that is named wins: Edge and Opera call themselves Chrome too, and Chrome Safari.
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
    """As people would call it; the words of what calls itself nothing that is known."""
    browser = next((name for word, name in _BROWSERS.items() if word in user_agent), "")
    system = next((name for word, name in _SYSTEMS.items() if word in user_agent), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or user_agent[:60] or "An unknown browser"
