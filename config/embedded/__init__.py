"""A private PostgreSQL and Valkey for one data folder, from the wheels of the extra `local`.

Any number of processes may hold one folder: the first starts the servers, the last stops them. See session.py
for the locks and keeper.py for the process that looks after the servers. Production imports none of it.
"""

from config.embedded.errors import EmbeddedError
from config.embedded.keys import load_or_create_secrets
from config.embedded.session import Servers, embedded_servers

__all__ = ["EmbeddedError", "Servers", "embedded_servers", "load_or_create_secrets"]
