"""Local targets that misbehave on the byte level, and the certificates they show."""
