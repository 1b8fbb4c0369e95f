"""Monitors of other services as monitors of ours: one module a source, each pure, and `creating`, which writes."""
