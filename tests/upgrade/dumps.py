"""Database dumps that contain every kind of data a user can create.

    python -m tests.upgrade.dumps NAME

writes NAME.sql.gz, with the schema of this commit, beside this file. It is never changed afterwards: the tests, and
`make upgrade`, restore it and migrate it with the code of their commit.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import django
import psycopg
from django.test.utils import setup_test_environment

from devserver.postgres import PROGRAMS
from tests.faults.system import migrate, serve_privately
from tests.processes.tree import Place

FOLDER = Path(__file__).parent
ENCRYPTION_KEY = "3Y7Yt0pDUyp1XHgZqE6b8gS2m1x0p6bq2aX5mPq3cWk="
"""Key of the encrypted values in the dumps, which are not used anywhere else."""


def dumps(folder: Path = FOLDER) -> list[Path]:
    """Return the dumps, oldest first."""
    return sorted(folder.glob("*.sql.gz"))


def restore(dump: Path, url: str) -> None:
    """Restore the dump into an empty database. Raises psycopg.Error."""
    with psycopg.connect(url) as database:
        database.execute(gzip.decompress(dump.read_bytes()).decode())


def freeze(path: Path) -> None:
    """Write a dump of the rows that `live` creates. Do not replace an existing file."""
    with tempfile.TemporaryDirectory(prefix="pulsekeeper-freeze-") as folder, ExitStack() as stack:
        serve_privately(stack, Path(folder))
        os.environ["ENCRYPTION_KEYS"] = ENCRYPTION_KEY
        migrate(Place())
        django.setup()
        setup_test_environment()

        from tests.factories import UserFactory  # Django is set up by now
        from tests.privacy.living import EMAIL, live

        live(UserFactory(email=EMAIL), UserFactory())
        program = PROGRAMS[0].with_name("pg_dump")
        # Without psql's own commands and a setting of new servers, so that any client restores it on any server.
        command = [str(program), "--inserts", "--no-owner", "--no-privileges", os.environ["DATABASE_URL"]]
        found = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    text = "".join(
        line for line in found.splitlines(keepends=True) if not line.startswith(("\\", "SET transaction_timeout"))
    )
    with path.open("xb") as file:
        file.write(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    freeze(FOLDER / f"{sys.argv[1]}.sql.gz")
