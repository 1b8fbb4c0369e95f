"""Parts of benchmarks/pipeline.py: the target, the monitors, the callers, and what is measured of whom."""
