#!/usr/bin/env python
import os
import sys

from devserver.environment import local_environment
from devserver.locks import EmbeddedError


def main() -> None:
    if sys.argv[1:2] == ["run"]:  # Django's setup would delay the job
        from monitors.management.commands.run import Command

        Command().run_from_argv(sys.argv)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        with local_environment(sys.argv):
            from django.core.management import execute_from_command_line

            execute_from_command_line(sys.argv)
    except EmbeddedError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
