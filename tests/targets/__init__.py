"""Local targets that misbehave at the byte level, and their certificates."""
