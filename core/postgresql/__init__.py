"""Django's backend for PostgreSQL, with a pool that gets over a restart of the server at once."""

HISTORY = "history"
"""The alias of the database of packed results and roll-ups (HISTORY_DATABASE_URL), which only some sites have."""
