"""Parts of benchmarks/pipeline.py: the target, the monitors, the callers, and the measurements."""
