"""Takes the place of click_repl, which Celery's command imports for an interactive shell, with 6 MiB of prompt_toolkit.

The Procfile puts this folder on the path of workers and beat.
"""

from __future__ import annotations


def register_repl(group: object) -> None:
    """Register nothing."""
