"""A byte-level random server, and the engine that is to survive it in a process of its own."""
