"""YAML text to plain values that know their lines. Pure, and bounded in every direction.

Only what JSON could hold too comes out: maps with text keys, lists, text, numbers, booleans, null. Dates stay text.
Tags are refused, so nothing in a file makes an object. Anchors and merge keys (`<<`) are taken; how much they may
unfold to is bounded, as are the size and the depth of the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from manifests.problems import Mark, Path, Problem, Refused, spelled

MAX_BYTES = 4 * 1024 * 1024
MAX_VALUES = 200_000
MAX_DEPTH = 30

_CORE = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_START = Mark(1, 1)


@dataclass(slots=True)
class Document:
    """`root` is what the file says; `marks` says where each value of it begins, `keys` where its key does."""

    root: Any
    marks: dict[Path, Mark] = field(default_factory=dict)
    keys: dict[Path, Mark] = field(default_factory=dict)

    def mark(self, path: Path) -> Mark:
        """Of the value, or of the nearest one around it that is in the file."""
        while path not in self.marks and path:
            path = path[:-1]
        return self.marks.get(path, _START)

    def problem(self, path: Path, message: str, *, at_key: bool = False) -> Problem:
        mark = self.keys.get(path) if at_key else None
        return Problem(mark or self.mark(path), spelled(path), message)


def read(data: bytes) -> Document:
    """Raises Refused: with the one error of a text that is no YAML, or all of what is in it and must not be."""
    if len(data) > MAX_BYTES:
        raise Refused([Problem(_START, "", f"the file is larger than {MAX_BYTES // 1024 // 1024} MiB.")])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Refused([Problem(Mark(line, 1), "", "is not UTF-8.")]) from None
    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        raise Refused([_syntax_error(error)]) from None
    except YAMLError as error:  # such as a character that YAML does not take
        raise Refused([Problem(_START, "", " ".join(str(error).split()) or "is no YAML.")]) from None
    except (RecursionError, ValueError) as error:
        reason = "is nested too deeply." if isinstance(error, RecursionError) else f"is no YAML: {error}"
        raise Refused([Problem(_START, "", reason)]) from None
    if node is None:
        raise Refused([Problem(_START, "", "the file is empty.")])
    builder = _Builder()
    document = builder.document
    document.root = builder.value(node, ())
    if builder.problems:
        raise Refused(builder.problems)
    return document


def _syntax_error(error: MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    said = ", ".join(filter(None, [error.context, error.problem])) or "is no YAML."
    return Problem(_START if mark is None else Mark(mark.line + 1, mark.column + 1), "", said)


class _TooMuchError(Exception):
    pass


class _Builder:
    def __init__(self) -> None:
        self.document = Document(None)
        self.problems: list[Problem] = []
        self._values = 0
        self._open: set[int] = set()  # nodes that are being built: one inside itself never ends

    def value(self, node: Node, path: Path) -> Any:
        try:
            return self._value(node, path)
        except _TooMuchError:
            self.problems.append(
                Problem(_START, "", f"the file holds more than {MAX_VALUES} values, its aliases unfolded.")
            )
            return None

    def _value(self, node: Node, path: Path) -> Any:
        self._count()
        self.document.marks[path] = _mark(node)
        if id(node) in self._open:
            return self._wrong(path, "is an alias of what it is in.")
        if len(path) > MAX_DEPTH:
            return self._wrong(path, "is nested too deeply.")
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if str(node.tag) not in {_CORE + "map", _CORE + "seq"}:
            return self._wrong(path, f"has the tag {node.tag}, and tags are not taken.")
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            return [self._value(child, (*path, index)) for index, child in enumerate(node.value)]
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, child in self._pairs(node, path):
            here = (*path, key.value)
            self.document.keys[here] = _mark(key)
            found[key.value] = self._value(child, here)
        return found

    def _pairs(self, node: MappingNode, path: Path) -> Iterator[tuple[ScalarNode, Node]]:
        """Its own, then those merged into it that it lacks; of several merged maps the first that has a key wins."""
        own: dict[str, Node] = {}
        merged: list[Node] = []
        for key, child in node.value:
            if isinstance(key, ScalarNode) and str(key.tag) == _CORE + "merge":
                merged += child.value if isinstance(child, SequenceNode) else [child]
            elif not isinstance(key, ScalarNode) or str(key.tag) != _CORE + "str":
                mark = _mark(key)
                self.problems.append(Problem(mark, spelled(path), "a key has to be text; put it in quotes."))
            elif key.value in own:
                said = f"is there already, in line {_mark(own[key.value]).line}."
                self.problems.append(Problem(_mark(key), spelled((*path, key.value)), said))
            else:
                own[key.value] = key
                yield key, child
        there = set(own)
        for other in merged:
            for key, child in self._merged(other, path):
                if key.value not in there:
                    there.add(key.value)
                    yield key, child

    def _merged(self, node: Node, path: Path) -> Iterator[tuple[ScalarNode, Node]]:
        self._count()
        if not isinstance(node, MappingNode):
            self.problems.append(Problem(_mark(node), spelled(path), "<< takes a map, or a list of maps."))
        elif id(node) in self._open:
            self._wrong(path, "is an alias of what it is in.")
        else:
            self._open.add(id(node))
            yield from self._pairs(node, path)
            self._open.discard(id(node))

    def _count(self) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            raise _TooMuchError

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        tag, text = str(node.tag).removeprefix(_CORE), node.value
        if tag in {"str", "timestamp", "value"}:
            return text
        if tag == "null":
            return None
        if tag == "bool":
            if text.lower() not in {"true", "false"}:  # under %YAML 1.1
                return self._wrong(path, "write true or false, or quote a text.")
            return text.lower() == "true"
        if tag == "int":
            if not _INT.fullmatch(text):
                return self._wrong(path, "is no plain whole number; write it in decimal, or quote a text.")
            return int(text)
        if tag == "float":
            try:
                return float(text)
            except ValueError:
                return self._wrong(path, "is no plain number; quote it if it is a text.")
        return self._wrong(path, f"has the tag {node.tag}, and tags are not taken.")

    def _wrong(self, path: Path, message: str) -> None:
        self.problems.append(Problem(self.document.mark(path), spelled(path), message))


def _mark(node: Node) -> Mark:
    mark = node.start_mark
    return Mark(mark.line + 1, mark.column + 1)
