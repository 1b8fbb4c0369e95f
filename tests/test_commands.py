"""docs/use/commands.md against the commands: each has a section, with its options and its exit codes."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from core.cli import Command
from pulsekeeper.agent.command import AgentCommand
from pulsekeeper.discover.command import Discover

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "use" / "commands.md").read_text()
# Django's options of each command.
_GIVEN = {"--help", "--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color"}
_GIVEN |= {"--force-color", "--skip-checks"}


def ours() -> Iterator[str]:
    """Yield our commands, without `migrate`: it has the options of Django's, for two databases."""
    for name, app in get_commands().items():
        if (
            name != "migrate"
            and isinstance(app, str)
            and (ROOT / app / "management" / "commands" / f"{name}.py").exists()
        ):
            yield name


def section(name: str) -> str:
    found = re.search(rf"^## `{name}`\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, f"docs/use/commands.md has no section of {name}"
    return found[1]


@pytest.mark.parametrize("name", sorted(ours()))
def test_the_page_says_what_help_says(name: str) -> None:
    command = load_command_class(get_commands()[name], name)
    compare(name, command.create_parser("manage.py", name))
    assert command.help
    assert f"manage.py {name}" in section(name)
    assert f"[`{name}`](#{name})" in PAGE


@pytest.mark.parametrize(("name", "command"), [("agent", AgentCommand()), ("discover", Discover())])
def test_the_page_says_what_help_of_commands_of_pulsekeeper_says(name: str, command: Command) -> None:
    """Those that `manage.py` does not have."""
    parser = ArgumentParser()
    command.add_arguments(parser)
    parser.epilog = command.epilog
    compare(name, parser)
    assert f"[`{name}`](#{name})" in PAGE


def compare(name: str, parser: ArgumentParser) -> None:
    """Compare the exit codes and options of a section with those of a parser."""
    text = section(name)
    codes = re.findall(r"^  (\d+) +(.+)$", (parser.epilog or "").partition("exit codes:\n")[2], re.MULTILINE)
    assert codes, "its help has no exit codes"
    assert re.findall(r"^\| (\d+) \| (.+) \|$", text, re.MULTILINE) == codes
    options = {option for action in parser._actions for option in action.option_strings if "--" in option}
    assert set(re.findall(r"`(--[a-z][a-z-]+)`", text)) >= options - _GIVEN
    assert set(re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", text)) <= options


def test_there_are_such_commands() -> None:
    assert {"probe", "run_checks", "import_from", "create_account"} <= set(ours())
