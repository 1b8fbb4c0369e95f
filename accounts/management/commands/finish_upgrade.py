from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from accounts.leftovers import remove_leftovers


class Command(BaseCommand):
    help = (
        "Remove what only the version before this one needs. Run it when none of its processes is left; there is no "
        "way back to it afterwards. Run again, it does nothing."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        for removed in remove_leftovers() or ["nothing: no leftovers of the version before"]:
            self.stdout.write(f"removed {removed}")
