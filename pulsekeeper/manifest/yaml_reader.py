"""Read YAML into plain values with line numbers. Pure.

The result has only what JSON supports: maps with text keys, lists, text, numbers, booleans and null. Dates stay text.
Tags are rejected, so files cannot create objects. Anchors and merge keys (`<<`) are supported. Size, depth and the
number of expanded values are limited.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from pulsekeeper.manifest.problems import START, Document, InvalidManifest, Mark, Path, Problem, format_path

MAX_BYTES = 4 * 1024 * 1024
MAX_VALUES = 200_000
MAX_DEPTH = 30

_CORE = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a character, which "\\ud800" in quotes can express


def read(data: bytes) -> Document:
    """Parse YAML. Raises InvalidManifest with the syntax error, or with all values that are not allowed."""
    if len(data) > MAX_BYTES:
        raise InvalidManifest([Problem(START, "", f"the file is larger than {MAX_BYTES // 1024 // 1024} MiB.")])
    mark = START
    try:
        node = YAML(typ="safe", pure=True).compose(data.decode("utf-8-sig"))
        if node is not None:
            return _Builder().build(node)
        reason = "the file is empty."
    except MarkedYAMLError as error:
        if (where := error.problem_mark or error.context_mark) is not None:
            mark = Mark(where.line + 1, where.column + 1)
        reason = ", ".join(filter(None, [error.context, error.problem])) or "is not YAML."
    except YAMLError as error:  # e.g. a character that YAML does not allow
        reason = " ".join(str(error).split()) or "is not YAML."
    except UnicodeDecodeError as error:
        mark, reason = Mark(data.count(b"\n", 0, error.start) + 1, 1), "is not UTF-8."
    except ValueError as error:
        reason = f"is not YAML: {error}"
    except RecursionError:
        reason = "is nested too deeply."
    raise InvalidManifest([Problem(mark, "", reason)])


class _Builder:
    def __init__(self) -> None:
        self.document = Document(None)
        self.problems: list[Problem] = []
        self._values = 0
        self._open: set[int] = set()  # open nodes, to detect cycles

    def build(self, node: Node) -> Document:
        """Return the document. Raises InvalidManifest."""
        self.document.root = self._value(node, ())
        if self.problems:
            raise InvalidManifest(self.problems)
        return self.document

    def _value(self, node: Node, path: Path) -> Any:
        self._count()
        self.document.marks[path] = _mark(node)
        if id(node) in self._open:
            return self._reject(path, "is an alias of its own parent.")
        if len(path) > MAX_DEPTH:
            return self._reject(path, "is nested too deeply.")
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if str(node.tag) not in {_CORE + "map", _CORE + "seq"}:
            return self._reject(path, f"has the tag {node.tag}, and tags are not accepted.")
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
        """Yield the map's own pairs, then merged ones with other keys. The first merged map that has a key wins."""
        own: dict[str, Node] = {}
        merged: list[Node] = []
        for key, child in node.value:
            if isinstance(key, ScalarNode) and str(key.tag) == _CORE + "merge":
                merged += child.value if isinstance(child, SequenceNode) else [child]
            elif not isinstance(key, ScalarNode) or str(key.tag) != _CORE + "str":
                self._reject(path, "a key must be text; quote it.", mark=_mark(key))
            elif _SURROGATE.search(key.value):
                self._reject(path, "a key has an escape that is no character.", mark=_mark(key))
            elif key.value in own:
                said = f"is already in line {_mark(own[key.value]).line}."
                self._reject((*path, key.value), said, mark=_mark(key))
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
            self._reject(path, "<< takes a map or a list of maps.", mark=_mark(node))
        elif id(node) in self._open:
            self._reject(path, "is an alias of its own parent.")
        else:
            self._open.add(id(node))
            yield from self._pairs(node, path)
            self._open.discard(id(node))

    def _count(self) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            self._reject((), f"the file has more than {MAX_VALUES} values, with aliases expanded.", mark=START)
            raise InvalidManifest(self.problems)

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        tag, text = str(node.tag).removeprefix(_CORE), node.value
        match tag:
            case "str" if _SURROGATE.search(text):
                return self._reject(path, "has an escape that is no character.")
            case "str" | "timestamp" | "value":
                return text
            case "null":
                return None
            case "bool" if text.lower() in {"true", "false"}:
                return text.lower() == "true"
            case "bool":  # in files with %YAML 1.1
                return self._reject(path, "write true or false, or quote the text.")
            case "int" if _INT.fullmatch(text):
                return int(text)
            case "int":
                return self._reject(path, "is not a decimal whole number; quote it if it is text.")
            case "float":
                with suppress(ValueError):
                    if math.isfinite(number := float(text)):
                        return number
                return self._reject(path, "is not a number; quote it if it is text.")
        return self._reject(path, f"has the tag {node.tag}, and tags are not accepted.")

    def _reject(self, path: Path, message: str, *, mark: Mark | None = None) -> None:
        self.problems.append(Problem(mark or self.document.mark(path), format_path(path), message))


def _mark(node: Node) -> Mark:
    mark = node.start_mark
    return Mark(mark.line + 1, mark.column + 1)
