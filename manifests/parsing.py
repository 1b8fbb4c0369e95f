"""Parse a document into items: validate fields and fill placeholders. Every problem has its line.

This uses no database. `manifests.planning` compares the items with the account.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from manifests.problems import Path, Problem, did_you_mean
from manifests.secrets import Keep, Secret, fill
from manifests.serializers import SECTIONS, secret_fields
from manifests.yaml_reader import Document

VERSION = 1
TOP = ("version", "ungrouped", *SECTIONS)


@dataclass(frozen=True, slots=True)
class Item:
    """A valid entry of one section, as returned by its serializer. `keeps` are secrets that keep their stored value."""

    section: str
    path: Path
    given: dict[str, Any]
    keeps: dict[Path, Keep]

    def take(self, name: str) -> Any:
        return self.given.get(name)

    def words(self, identity: str) -> list[str]:
        """Return the names by which others may refer to it."""
        return [self.given[name] for name in (identity, "id") if name in self.given]


@dataclass(slots=True)
class Manifest:
    """The content of a file. `sections` are the sections that it has, `invalid` the invalid items by path."""

    document: Document
    ungrouped: bool = False
    sections: dict[str, list[Item]] = field(default_factory=dict)
    invalid: list[tuple[Path, Any]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def parse(document: Document, environment: Mapping[str, str]) -> Manifest:
    """Return the valid items. Problems of the others are added to `problems`."""
    return _Parser(document, environment).parse()


class _Parser:
    def __init__(self, document: Document, environment: Mapping[str, str]) -> None:
        self.document, self.environment = document, environment
        self.found = Manifest(document)

    def parse(self) -> Manifest:
        root = self.document.root
        if not isinstance(root, dict):
            self._problem((), f"the file must be a map of {', '.join(TOP)}.")
            return self.found
        for name in root:
            if name not in TOP:
                self._problem((name,), f"unknown section.{did_you_mean(name, TOP)}", at_key=True)
        version = root.get("version")
        if "version" not in root or type(version) is not int or version != VERSION:
            self._problem(("version",), f"must be {VERSION}, the version of the format.")
        ungrouped = root.get("ungrouped", False)
        if not isinstance(ungrouped, bool):
            self._problem(("ungrouped",), "must be true or false.")
        self.found.ungrouped = ungrouped is True
        for section, serializer in SECTIONS.items():
            if section in root:
                self.found.sections[section] = self._section(section, serializer(), root[section])
        return self.found

    def _section(self, section: str, serializer: serializers.Serializer[Any], value: Any) -> list[Item]:
        if value is None:  # a key without value
            return []
        if not isinstance(value, list):
            self._problem((section,), "must be a list.")
            return []
        items = []
        for index, data in enumerate(value):
            path: Path = (section, index)
            before = len(self.found.problems)
            item = self._item(section, serializer, data, path)
            if item is None or len(self.found.problems) > before:
                self.found.invalid.append((path, data))
            else:
                items.append(item)
        return items

    def _item(self, section: str, serializer: serializers.Serializer[Any], data: Any, path: Path) -> Item | None:
        if not isinstance(data, dict):
            self._problem(path, "must be a map.")
            return None
        known = self._known(serializer, data, path)
        keeps: dict[Path, Keep] = {}
        filled = self._filled(section, known, path, keeps)
        try:
            given = dict(serializer.run_validation(filled))
        except ValidationError as error:
            self._report(error.detail, path)
            return None
        return Item(section, path, given, keeps)

    def _known(self, serializer: serializers.Serializer[Any], data: dict[str, Any], path: Path) -> Any:
        """Return the data without unknown keys, and report these."""
        there: dict[str, Any] = {}
        for name, value in data.items():
            here = (*path, name)
            field_ = serializer.fields.get(name)
            if field_ is None:
                said = f"unknown field.{did_you_mean(name, serializer.fields)}"
                self._problem(here, said, at_key=True)
                continue
            child = getattr(field_, "child", None)
            if isinstance(child, serializers.Serializer) and isinstance(value, list):
                value = [
                    self._known(child, one, (*here, index)) if isinstance(one, dict) else one
                    for index, one in enumerate(value)
                ]
            there[name] = value
        return there

    def _filled(self, section: str, data: dict[str, Any], path: Path, keeps: dict[Path, Keep]) -> dict[str, Any]:
        """Fill the placeholders. Those that keep the stored value are added to `keeps`."""
        if section != "monitors":
            return self._without_keeps(data, secret_fields(section), path, keeps)
        headers = data.get("request_headers")
        if not isinstance(headers, list):
            return data
        filled = [
            {"value": "", **self._without_keeps(header, ("value",), (*path, "request_headers", index), keeps)}
            if isinstance(header, dict) and "value" in header
            else header
            for index, header in enumerate(headers)
        ]
        return {**data, "request_headers": filled}

    def _without_keeps(
        self, data: dict[str, Any], fields: tuple[str, ...], path: Path, keeps: dict[Path, Keep]
    ) -> dict[str, Any]:
        found = dict(data)
        for name in fields:
            here = (*path, name)
            if not isinstance(found.get(name), str):
                continue
            try:
                value = fill(found[name], self.environment)
            except ValueError as error:
                self._problem(here, str(error))
                continue
            if isinstance(value, Secret):
                found[name] = value.value
            else:
                keeps[here] = value
                del found[name]
        return found

    def _report(self, detail: Any, path: Path) -> None:
        """Report every message of DRF's nested detail."""
        if isinstance(detail, dict):
            for name, inner in detail.items():
                step = int(name) if isinstance(name, str) and name.isdigit() else name
                self._report(inner, path if name == "non_field_errors" else (*path, step))
        elif isinstance(detail, list):
            for index, inner in enumerate(detail):
                if isinstance(inner, dict | list):
                    self._report(inner, (*path, index))
                else:
                    self._problem(path, str(inner))
        else:
            self._problem(path, str(detail))

    def _problem(self, path: Path, message: str, *, at_key: bool = False) -> None:
        self.found.problems.append(self.document.problem(path, message, at_key=at_key))
