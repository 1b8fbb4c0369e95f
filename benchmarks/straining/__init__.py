"""The inputs of benchmarks/strangers.py, their data, and the measurement of their cost."""
