"""Check monitors for CI pipelines: choose them, check them, and report the results."""
