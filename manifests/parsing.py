"""Parse a document into entries: validate fields and fill placeholders. Every problem has its line.

This uses no database. `manifests.planning` compares the entries with the account.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.serializers import Serializer

from manifests.account import Entry
from manifests.problems import MAX_PROBLEMS, Hints, InvalidManifest, Path, Problem
from manifests.secrets import Keep, Secret, fill
from manifests.serializers import SECTIONS, ManifestSerializer
from manifests.yaml_reader import Document

VERSION = 1
TOP = ("version", "ungrouped", *SECTIONS)


@dataclass(slots=True)
class Manifest:
    """The content of a file. `sections` are the sections that it has, `invalid` the data of invalid entries."""

    document: Document
    ungrouped: bool = False
    sections: dict[str, list[Entry]] = field(default_factory=dict)
    invalid: list[tuple[Path, Any]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def parse(document: Document, environment: Mapping[str, str]) -> Manifest:
    """Return the valid entries. Problems of the others are added to `problems`.

    Raises InvalidManifest if they are more than it reports.
    """
    return _Parser(document, environment).parse()


class _Parser:
    def __init__(self, document: Document, environment: Mapping[str, str]) -> None:
        self.document, self.environment = document, environment
        self.found = Manifest(document)
        self.hints = Hints()

    def parse(self) -> Manifest:
        root = self.document.root
        if not isinstance(root, dict):
            self._problem((), f"the file must be a map of {', '.join(TOP)}.")
            return self.found
        for name in root:
            if name not in TOP:
                self._problem((name,), f"unknown section.{self.hints.did_you_mean(name, TOP)}", at_key=True)
        version, ungrouped = root.get("version"), root.get("ungrouped", False)
        if type(version) is not int or version != VERSION:
            self._problem(("version",), f"must be {VERSION}, the version of the format.")
        if not isinstance(ungrouped, bool):
            self._problem(("ungrouped",), "must be true or false.")
        self.found.ungrouped = ungrouped is True
        for section, serializer in SECTIONS.items():
            if section not in root:
                continue
            self.found.sections[section] = []
            parser = serializer()
            if isinstance(root[section], list):
                for index, data in enumerate(root[section]):
                    self._add(parser, data, (section, index))
            elif root[section] is not None:  # null: a key without value
                self._problem((section,), "must be a list.")
        return self.found

    def _add(self, serializer: ManifestSerializer, data: Any, path: Path) -> None:
        before = len(self.found.problems)
        entry = self._entry(serializer, data, path)
        if entry is None or len(self.found.problems) > before:
            self.found.invalid.append((path, data))
        else:
            self.found.sections[entry.section].append(entry)

    def _entry(self, serializer: ManifestSerializer, data: Any, path: Path) -> Entry | None:
        if not isinstance(data, dict):
            self._problem(path, "must be a map.")
            return None
        keeps: dict[Path, Keep] = {}
        prepared = self._prepare(serializer, data, path, keeps)
        try:
            return Entry(str(path[0]), path, dict(serializer.run_validation(prepared)), keeps)
        except ValidationError as error:
            self._report(error.detail, path)
            return None

    def _prepare(
        self, serializer: Serializer[Any], data: dict[str, Any], path: Path, keeps: dict[Path, Keep]
    ) -> dict[str, Any]:
        """Return the data with filled placeholders and without unknown keys, which are reported.

        Placeholders that keep the stored value are added to `keeps`.
        """
        found: dict[str, Any] = {}
        secrets = serializer.secret_fields() if isinstance(serializer, ManifestSerializer) else ()
        for name, value in data.items():
            here = (*path, name)
            field_ = serializer.fields.get(name)
            child = getattr(field_, "child", None)
            if field_ is None:
                self._problem(here, f"unknown field.{self.hints.did_you_mean(name, serializer.fields)}", at_key=True)
                continue
            if isinstance(child, Serializer) and isinstance(value, list):
                value = [
                    self._prepare(child, one, (*here, index), keeps) if isinstance(one, dict) else one
                    for index, one in enumerate(value)
                ]
            elif name in secrets and isinstance(value, str):
                try:
                    filled = fill(value, self.environment)
                except ValueError as error:
                    self._problem(here, str(error))
                else:
                    if isinstance(filled, Secret):
                        value = filled.value
                    else:
                        keeps[here], value = filled, ""
                        if not field_.required:
                            continue
            found[name] = value
        return found

    def _report(self, detail: Any, path: Path) -> None:
        """Report every message of DRF's nested detail."""
        if isinstance(detail, dict):
            for name, inner in detail.items():
                step = int(name) if isinstance(name, str) and name.isdigit() else name
                self._report(inner, path if name == "non_field_errors" else (*path, step))
        elif isinstance(detail, list):
            for index, inner in enumerate(detail):
                self._report(inner, (*path, index) if isinstance(inner, dict | list) else path)
        else:
            self._problem(path, str(detail))

    def _problem(self, path: Path, message: str, *, at_key: bool = False) -> None:
        self.found.problems.append(self.document.problem(path, message, at_key=at_key))
        if len(self.found.problems) > MAX_PROBLEMS:
            raise InvalidManifest(self.found.problems)
