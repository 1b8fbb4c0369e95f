"""Write the generated files again: `python -m tests.generated`. Tests compare them with the code."""

from __future__ import annotations

import json
import os

import django
from django.core.management import call_command

from tests.targets import document


def main() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    django.setup()
    from manifests.schema import schema
    from tests.alerts import documents, samples
    from tests.api.client import SCHEMA

    call_command("spectacular", "--format", "openapi-json", "--validate", "--fail-on-warn", "--file", str(SCHEMA))
    (SCHEMA.parent / "samples" / "pulsekeeper.schema.json").write_text(json.dumps(schema(), indent=2) + "\n")
    samples.write()
    document.DOCUMENT.write_text(document.with_catalogue(document.DOCUMENT.read_text()))
    documents.DOCUMENT.write_text(documents.with_services(documents.DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
