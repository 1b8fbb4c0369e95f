class EmbeddedError(Exception):
    """The private servers cannot be had; `str()` is one line for a person."""
