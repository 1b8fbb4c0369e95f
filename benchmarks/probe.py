"""Compare the cost of a check: our probe engine, bare libcurl or sockets, requests and blackbox_exporter.

    python benchmarks/probe.py [--scenario NAME ...] [--checks N] [--rounds N] [--hang-ms N]

http_100, http_500, https_100, https_500: this many checks are in flight at any time, until all are done. Each engine
runs in its own process; they take turns with the same local target, and the figures are medians of the rounds: CPU
of that process for each check, checks per second, and its largest memory. The target is one Python process, so the
rate is often its limit; its CPU is not counted.

tcp_100: the same with connections alone, beside a loop of bare sockets.

udp_100: the same with datagrams, beside a loop of bare sockets. Each check has an address of its own, because an
address is checked once a second.

ping_100: the same with three echo requests to the kernel, 200 ms apart, beside a loop over one bare socket. The CPU of
the replies counts, too, as the kernel makes them while it sends. blackbox_exporter sends one
request, for one check at a time.

dns_100: the same with one question to a name server, beside a loop of bare sockets that does not read the answer.

hanging_100, hanging_500: batches that start all at once, with every tenth check at another target. The time until
the last response of the other nine in ten is compared between batches in which that target answers and batches in
which it never does.

Goals: http costs at most 150 us of CPU for each check more than bare libcurl, at most twice as much, and with 100 at
once at most a fifth of requests; https costs at most twice as much as bare libcurl; tcp, udp and a ping cost at most
80 us, dns at most 250 us; hanging checks slow the others by at most 10 %. A bare pycurl loop stands for libcurl, since
a test machine may have neither a compiler nor libcurl's headers. The overhead of pycurl over C makes the goal easier
by as much. blackbox_exporter is measured if its program is on PATH and it has the protocol; otherwise its figures are
null. It has no goal.

The last line is one JSON object: the figures of each scenario, and `goal_met`. Exits 1 if a goal is missed.
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--scenario", action="append", choices=SCENARIOS, help="may be given more than once; default all"
    )
    parser.add_argument(
        "--checks", type=int, default=3_000, help="checks a round, over TLS a third of it (default %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default %(default)s)")
    parser.add_argument(
        "--hang-ms", type=int, default=1_000, help="deadline of the checks that hang (default %(default)s)"
    )
    options = parser.parse_args()
    effort = Effort(checks=max(options.checks, 1), rounds=max(options.rounds, 1), hang_ms=max(options.hang_ms, 100))
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
