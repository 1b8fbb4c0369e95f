"""Run Django's checks, look for missing migrations and validate the API schema, in one process for `tests.run`.

The exit code is 1 if any of them fails. Each runs, and the failed ones are named in the last line.
"""

from __future__ import annotations

import os
import sys
import traceback

import django
from django.core.management import call_command
from django.core.management.base import CommandError

COMMANDS = (
    ("check", "--fail-level", "WARNING"),
    ("makemigrations", "--check", "--dry-run"),
    ("spectacular", "--validate", "--fail-on-warn", "--file", os.devnull),
)


def passes(name: str, *options: str) -> bool:
    """Run a command, and print why it fails. No failure stops the other commands."""
    try:
        call_command(name, *options)
    except CommandError as error:
        sys.stderr.write(f"{error}\n")
    except SystemExit:  # of makemigrations, which has printed what is missing
        pass
    except Exception:  # noqa: BLE001 - a command that crashes has failed
        traceback.print_exc()
    else:
        return True
    return False


def main() -> int:
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    django.setup()
    failed = [command for command in COMMANDS if not passes(*command)]
    for command in failed:
        sys.stderr.write(f"FAILED: manage.py {' '.join(command)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
