"""`pulsekeeper COMMAND`. Each command is imported when it is called, so that none waits for another's libraries."""

from __future__ import annotations

import sys
import traceback
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from core.cli import EXIT_BUG, EXIT_INTERRUPTED, EXIT_USAGE, Command, CommandFailed, use_utf8

if TYPE_CHECKING:
    from pulsekeeper.manifest.commands import Backend

COMMANDS = {
    "apply": "make an account match a YAML file",
    "export": "write that file",
    "check": "run checks of monitors now",
    "import": "create monitors from the export of another product",
    "discover": "create monitors from labels of Docker, Kubernetes and Compose",
    "probe": "check one address from this machine",
    "run": "run a job and report it to a heartbeat",
    "agent": "make the checks of a location",
}
_HELP = """\
usage: pulsekeeper COMMAND [OPTIONS]

{commands}

pulsekeeper COMMAND --help describes a command. apply, export, check, import and discover work on a server:
PULSEKEEPER_URL or --url is its address, and PULSEKEEPER_TOKEN, or the file that PULSEKEEPER_TOKEN_FILE or --token-file
names, has a token.
"""


def command_named(name: str) -> Command:
    match name:
        case "agent":
            from pulsekeeper.agent.command import AgentCommand

            return AgentCommand()
        case "check":
            from pulsekeeper.check.command import Check

            return Check()
        case "discover":
            from pulsekeeper.discover.command import Discover

            return Discover()
        case "probe":
            from monitors.checking.command import Probe, engine_of_environment

            return Probe(engine_of_environment)
        case "run":
            from pulsekeeper.run.command import Run

            return Run()
        case _:
            from pulsekeeper.manifest import commands
            from pulsekeeper.manifest.remote import RemoteBackend

            kinds: dict[str, Callable[[type[Backend]], Command]] = {
                "apply": commands.Apply,
                "export": commands.Export,
                "import": commands.Import,
            }
            return kinds[name](RemoteBackend)


class _Parser(ArgumentParser):
    def __init__(self, command: Command, name: str) -> None:
        self._command = command
        prog = f"pulsekeeper {name}"
        super().__init__(
            prog=prog,
            description=command.help,
            epilog=command.epilog.replace("{prog}", prog),
            formatter_class=RawDescriptionHelpFormatter,
        )
        command.add_arguments(self)

    def error(self, message: str) -> NoReturn:
        self.exit(self._command.usage_code, f"{self.prog}: {self._command.explain(message)}\n")


def main(arguments: list[str] | None = None) -> NoReturn:
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        listed = "\n".join(f"  {command:8} {text}" for command, text in COMMANDS.items())
        sys.stdout.write(_HELP.format(commands=listed))
        sys.exit(0)
    if name == "--version":
        from core.version import product_version

        sys.stdout.write(f"pulsekeeper {product_version()}\n")
        sys.exit(0)
    if name not in COMMANDS:
        sys.stderr.write(f"pulsekeeper: no command {name!r}; there are {', '.join(COMMANDS)}\n")
        sys.exit(EXIT_USAGE)
    use_utf8(sys.stdout)
    try:
        command = command_named(name)
        parser = _Parser(command, name)
        parse = parser.parse_intermixed_args if command.mixes_arguments else parser.parse_args
        options = vars(parse(rest))
        sys.exit(command.run(options, out=sys.stdout, err=sys.stderr))
    except CommandFailed as error:
        sys.stderr.write(f"pulsekeeper {name}: {command.explain(str(error))}\n")
        sys.exit(error.code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception:  # noqa: BLE001 (printed)
        traceback.print_exc()
        sys.exit(EXIT_BUG)


if __name__ == "__main__":
    main()
