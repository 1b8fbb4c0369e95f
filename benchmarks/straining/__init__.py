"""What benchmarks/strangers.py sends, to which data, and how it measures the cost."""
