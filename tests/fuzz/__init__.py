"""A server of random bytes, and the engine that must survive it in a separate process."""
