"""The process that parses and renders templates: JSON on standard input, JSON on standard output.

`alerts.templates` runs this file as a script, so it imports none of our modules. Users write the templates. Liquid
limits loops, output and variables, but not what one filter or its parser does: the kernel limits time and memory here,
outside of the web process and the worker.

Input: `{templates: {name: source}, variables: {…} or null}`. Output by name: `{text}`, or `{error, line}`. Without
variables the templates are only parsed, and `text` is empty.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any, ClassVar

import liquid
from liquid.exceptions import LiquidError

CPU_SEC = 1
MEMORY_BYTES = 128 * 1024 * 1024  # of address space; the interpreter and Liquid take 60 MB
MAX_OUTPUT = 16_000
"""Bytes of a rendered template."""
MAX_LOOPS = 1_000
MAX_VARIABLES = 64_000
_READING_OTHERS = ("include", "render", "doc", "tablerow", "increment", "decrement")
_ERROR_CHARS = 200


class Environment(liquid.Environment):
    """Standard Liquid without tags that load other templates."""

    loop_iteration_limit: ClassVar[int | None] = MAX_LOOPS
    local_namespace_limit: ClassVar[int | None] = MAX_VARIABLES
    output_stream_limit: ClassVar[int | None] = MAX_OUTPUT
    context_depth_limit: ClassVar[int] = 20
    block_nesting_limit: ClassVar[int] = 20

    def setup_tags_and_filters(self, *, extra: bool = False) -> None:
        super().setup_tags_and_filters(extra=False)
        for name in _READING_OTHERS:
            self.tags.pop(name, None)

    def error(self, exc: Any, msg: str | None = None, token: Any = None) -> None:
        """Raise the error, at the present token if it has no place."""
        if isinstance(exc, LiquidError) and (exc.token is None or exc.token.start_index < 0):
            exc.token = token
        super().error(exc, msg, token)


def main() -> None:
    """Answer standard input. SIGXCPU ends the process at the CPU limit."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SEC, CPU_SEC + 1))
    if sys.platform == "linux":  # other systems do not enforce it
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    given = json.load(sys.stdin.buffer)
    environment = Environment()
    answer = {name: _render(environment, source, given["variables"]) for name, source in given["templates"].items()}
    json.dump(answer, sys.stdout)


def _render(environment: Environment, source: str, variables: dict[str, Any] | None) -> dict[str, Any]:
    try:
        template = environment.from_string(source)
        if variables is not None:
            return {"text": template.render(**variables)}
        for name, places in template.analyze().filters.items():
            if name not in environment.filters:
                return {"error": f"unknown filter '{name}'"[:_ERROR_CHARS], "line": _line(source, places[0].index)}
    except LiquidError as error:
        at = -1 if error.token is None else error.token.start_index
        return {"error": str(error.message)[:_ERROR_CHARS], "line": _line(source, at)}
    except Exception as error:  # noqa: BLE001 - a filter may raise anything for odd input
        return {"error": type(error).__name__, "line": _line(source, -1)}
    return {"text": ""}


def _line(source: str, index: int) -> int:
    """Return the number of the line, from 1; the last one for a negative index: the end of the template."""
    return 1 + source.count("\n", 0, index if index >= 0 else len(source))


if __name__ == "__main__":
    main()
