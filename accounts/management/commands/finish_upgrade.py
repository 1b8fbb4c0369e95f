from __future__ import annotations

from typing import Any

from accounts.leftovers import remove_leftovers
from core.commands import OurCommand


class Command(OurCommand):
    help = (
        "Remove what only the version before this one needs. Run it when none of its processes is left; there is no "
        "way back to it afterwards. Run again, it does nothing."
    )
    epilog = """\
exit codes:
  0  nothing of the version before is left
  2  wrong use
  4  the database cannot be reached
"""

    def handle(self, *args: Any, **options: Any) -> None:
        for removed in remove_leftovers() or ["nothing: no leftovers of the version before"]:
            self.stdout.write(f"removed {removed}")
