"""What a check costs: our probe core beside bare libcurl, requests and blackbox_exporter (issues 2 and 4).

    python benchmarks/probe.py [--scenario NAME ...] [--checks N] [--rounds N] [--hang-ms N]

http_100, http_500, https_100, https_500: so many checks in flight at any time, until all are done. Every way runs
in a process of its own, all of them in turns against the same local target, and the figures are medians of the
rounds: CPU of that process alone per check, checks per second, and the most memory it held. The target is one
process of Python, so that the rate is often its rate and not the way's; its CPU is not counted.

hanging_100, hanging_500: batches that start all at once, all of them in flight, every tenth check at another
target. Compared is the time until the last answer of the other nine in ten, between batches where that target
answers and batches where it never does. (Beyond `max_in_flight` a check waits for a place, and what hangs
holds one until its deadline: that is the bound on memory at work, and not measured here.)

Goals: http costs no more than 150 us of CPU a check over plain libcurl, no more than 2 times as much as it, and
with 100 at once no more than a fifth of requests; https no more than 2 times plain libcurl; what hangs slows the
others by no more than 10 %. A bare pycurl loop stands for plain libcurl, since a test machine need have neither a
compiler nor libcurl's headers; what pycurl itself costs over C makes the goal easier by as much.
blackbox_exporter is measured where its program is on PATH; its figures are null elsewhere, and it has no goal.

The last line printed is one JSON object: scenario to figures, and `goal_met`. Exits 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.probing.scenarios import SCENARIOS, Effort, Figures, measure


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scenario", action="append", choices=SCENARIOS, help="may be given more than once; default all"
    )
    parser.add_argument(
        "--checks",
        type=int,
        default=3_000,
        help="checks a round, over TLS a third of it (default %(default)s)",
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default %(default)s)")
    parser.add_argument(
        "--hang-ms", type=int, default=1_000, help="deadline of the checks that hang (default %(default)s)"
    )
    options = parser.parse_args()
    effort = Effort(
        checks=max(options.checks, 1), rounds=max(options.rounds, 1), hang_ms=max(options.hang_ms, 100)
    )
    found: dict[str, Figures] = {}
    for name in options.scenario or SCENARIOS:
        with tempfile.TemporaryDirectory(prefix="pulsekeeper-benchmark-") as folder:
            found[name] = measure(SCENARIOS[name], effort, Path(folder))
        print(name, json.dumps(found[name], indent=1), flush=True)
    met = all(figures["goal_met"] for figures in found.values())
    print(json.dumps(found | {"goal_met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
