"""Parse a document into entries: validate fields and fill placeholders. Every problem has its line.

This uses no database. `manifests.planning` compares the entries with the account.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.serializers import Serializer

from manifests.account import Entry
from manifests.serializers import SECTIONS, ManifestSerializer
from pulsekeeper.manifest.problems import MAX_PROBLEMS, Document, Hints, InvalidManifest, Path, Problem
from pulsekeeper.manifest.secrets import Keep, Secret, fill

VERSION = 1
TOP = ("version", "ungrouped", *SECTIONS)


class Manifest:
    """The valid entries of a file by section, for those sections that it has, and the problems of the others.

    `invalid` is the data of invalid entries. Raises InvalidManifest if there are more problems than it reports.
    """

    def __init__(self, document: Document, environment: Mapping[str, str]) -> None:
        self.document, self._environment = document, environment
        self.ungrouped = False
        self.sections: dict[str, list[Entry]] = {}
        self.invalid: list[tuple[Path, Any]] = []
        self.problems: list[Problem] = []
        self._hints = Hints()
        if isinstance(document.root, dict):
            self._parse(document.root)
        else:
            self._problem((), f"the file must be a map of {', '.join(TOP)}.")

    def _parse(self, root: dict[str, Any]) -> None:
        for name in root:
            if name not in TOP:
                self._problem((name,), f"unknown section.{self._hints.did_you_mean(name, TOP)}", at_key=True)
        version, ungrouped = root.get("version"), root.get("ungrouped", False)
        if type(version) is not int or version != VERSION:
            self._problem(("version",), f"must be {VERSION}, the version of the format.")
        if not isinstance(ungrouped, bool):
            self._problem(("ungrouped",), "must be true or false.")
        self.ungrouped = ungrouped is True
        for section, serializer in SECTIONS.items():
            if section not in root:
                continue
            self.sections[section] = []
            parser = serializer()
            if isinstance(root[section], list):
                for index, data in enumerate(root[section]):
                    self._add(parser, data, (section, index))
            elif root[section] is not None:  # null: a key without value
                self._problem((section,), "must be a list.")

    def _add(self, serializer: ManifestSerializer, data: Any, path: Path) -> None:
        before = len(self.problems)
        entry = Entry(str(path[0]), path)
        if isinstance(data, dict):
            try:
                entry.given = dict(serializer.run_validation(self._prepare(serializer, data, path, entry.keeps)))
            except ValidationError as error:
                self._report(error.detail, path)
        else:
            self._problem(path, "must be a map.")
        if len(self.problems) > before:
            self.invalid.append((path, data))
        else:
            self.sections[entry.section].append(entry)

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
                self._problem(here, f"unknown field.{self._hints.did_you_mean(name, serializer.fields)}", at_key=True)
                continue
            if isinstance(child, Serializer) and isinstance(value, list):
                value = [
                    self._prepare(child, one, (*here, index), keeps) if isinstance(one, dict) else one
                    for index, one in enumerate(value)
                ]
            elif name in secrets and isinstance(value, str):
                try:
                    filled = fill(value, self._environment)
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
        self.problems.append(self.document.problem(path, message, at_key=at_key))
        if len(self.problems) > MAX_PROBLEMS:
            raise InvalidManifest(self.problems)
