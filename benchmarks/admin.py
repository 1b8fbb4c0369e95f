"""Measure the admin with a million results: every list, search, filter and row, and the health page.

    python benchmarks/admin.py [--monitors 5000] [--requests 5]

Private servers, filled by `benchmarks.seeding` with 200 checks for each of 5,000 monitors, and with rows of
every other table that the admin shows (`benchmarks/admin_rows.py`): 5,000 accounts, 100,000 messages, 20,000
incidents, 50,000 entries of each log. A separate process requests the pages as a superuser
(`benchmarks/admin_pages.py`). Times are medians in ms; queries are counted in one request.

The last line is one JSON object. Exits 1 if a page fails, takes over 20 queries, or over a second in the median.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.serving import serving

MOST_MS, MOST_QUERIES = 1_000, 20
CHECKS_EACH = 200
INTERVAL_SEC = 86_400 // CHECKS_EACH
EMAIL = "bench@example.com"

ACCOUNT = f"""
import django; django.setup()
from accounts.models import Plan
from accounts.services import create_account
Plan.objects.update(monitor_limit=1_000_000)
create_account(email={EMAIL!r}, password="a fine long password", plan="pro", is_staff=True, is_superuser=True)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--monitors", type=int, default=5_000, help=f"each with {CHECKS_EACH} checks")
    parser.add_argument("--requests", type=int, default=5, help="of each page")
    options = parser.parse_args()
    with serving({"THROTTLE_SCALE": "0", "LOG_LEVEL": "WARNING"}, setup=ACCOUNT) as server:
        start = time.monotonic()
        seeded = server.seed(EMAIL, monitors=options.monitors, days=1, interval_sec=INTERVAL_SEC)
        server.python("-m", "benchmarks.admin_rows")
        print(f"{seeded.strip()}, and all else, in {time.monotonic() - start:.0f} s", flush=True)
        counts, pages = server.python("-m", "benchmarks.admin_pages", EMAIL, str(options.requests)).splitlines()[-2:]
    found: dict[str, tuple[float, int]] = json.loads(pages)
    for address, (ms, queries) in sorted(found.items(), key=lambda item: -item[1][0])[:10]:
        print(f"{ms:7.1f} ms {queries:3} queries  {address}")
    missed = [address for address, (ms, queries) in found.items() if ms > MOST_MS or queries > MOST_QUERIES]
    slowest = max(found, key=lambda address: found[address][0])
    summary = json.loads(counts) | {
        "slowest_ms": found[slowest][0],
        "slowest": slowest,
        "most_queries": max(queries for _, queries in found.values()),
        "health_ms": found["/system"][0],
        "missed": missed,
        "goal_met": not missed,
    }
    print(json.dumps(summary))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
