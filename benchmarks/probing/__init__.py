"""The parts of benchmarks/probe.py: targets to ask, ways to ask them, and what to compare."""
