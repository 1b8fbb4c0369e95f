"""Parts of benchmarks/probe.py: targets, engines and scenarios."""
