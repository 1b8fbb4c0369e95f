"""Services of a Compose file. `docker compose` is not needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pulsekeeper.discover.labels import PREFIX, Complaint, Labelled, Listing
from pulsekeeper.discover.traefik import addresses_of_labels
from pulsekeeper.manifest.problems import Document, InvalidManifest

_WORD = "[A-Za-z_][A-Za-z0-9_]*"
_HOLE = re.compile(rf"\$(?:(\$)|\{{({_WORD})(?:(:?[-?+])([^${{}}]*))?\}}|({_WORD})|)")


def list_compose(document: Document, *, traefik: bool, variables: Mapping[str, str]) -> Listing:
    """Return the services. `variables` are those that labels may contain. Raises InvalidManifest."""
    root = document.root
    services = root.get("services") if isinstance(root, dict) else None
    if not isinstance(services, dict):
        raise InvalidManifest([document.problem((), "is not a Compose file: it has no map `services`.")])
    listing = Listing()
    if "include" in root:
        _gap(listing, Complaint("include", "", "is not supported: discover from each file, with its own --source."))
    project = f"{root['name']}/" if isinstance(root.get("name"), str) and "$" not in root["name"] else ""
    for name, service in services.items():
        place = f"service {name}"
        if not isinstance(service, dict):
            raise InvalidManifest([document.problem(("services", name), "must be a map.")])
        for unsupported in ("extends", "label_file"):
            if unsupported in service:
                said = f"{unsupported} is not supported: write the labels into this file."
                _gap(listing, Complaint(place, "", said))
        deploy = service.get("deploy")
        given: dict[str, Any] = {}
        for path, found in (
            (("services", name, "labels"), service.get("labels")),
            (("services", name, "deploy", "labels"), deploy.get("labels") if isinstance(deploy, dict) else None),
        ):
            try:
                given |= _labels(found)
            except ValueError as error:
                raise InvalidManifest([document.problem(path, str(error))]) from None
        labels: dict[str, str] = {}
        for label, value in given.items():
            if not label.lower().startswith((PREFIX, "traefik.")):
                continue
            try:
                labels[label] = _HOLE.sub(_filler(variables), value)
            except ValueError as error:
                # What it would be is unknown: so is what it created.
                _gap(listing, Complaint(place, label, str(error)))
                labels = {}
                break
        addresses, problems = addresses_of_labels(labels) if traefik else ([], [])
        listing.notes += [f"{place}: {label}: {why}" for label, why in problems]
        listing.objects.append(Labelled(place=place, name=project + name, labels=labels, addresses=addresses))
    return listing


def _gap(listing: Listing, complaint: Complaint) -> None:
    listing.complaints.append(complaint)
    listing.gaps.append(str(complaint))


def _labels(given: Any) -> dict[str, str]:
    """Return the labels of a map, or of a list of `name=value`. Raises ValueError."""
    if given is None:
        return {}
    if isinstance(given, dict) and not any(isinstance(value, dict | list) for value in given.values()):
        return {name: _plain(value) for name, value in given.items()}
    if isinstance(given, list) and all(isinstance(one, str) for one in given):
        return {name: value for name, _, value in (one.partition("=") for one in given)}
    raise ValueError("must be a map of texts, or a list of name=value.")


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _filler(variables: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    def fill(hole: re.Match[str]) -> str:
        """Return the text for a hole, by the rules of Compose. Raises ValueError."""
        if hole[1]:
            return "$"
        name, operator, word = hole[2] or hole[5], hole[3] or "", hole[4] or ""
        if not name:
            raise ValueError("has a $ without the name of a variable; write $$ for a literal $.")
        value = variables.get(name)
        there = value is not None and (value != "" or not operator.startswith(":"))
        if operator.endswith("+"):
            return word if there else ""
        if there and value is not None:
            return value
        if operator.endswith("-"):
            return word
        raise ValueError(f"needs the variable {name}: give --env {name} or --env {name}=VALUE.")

    return fill
