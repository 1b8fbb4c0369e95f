"""Databases of earlier versions. Each released one, and each that an operator may have, must be upgradable."""
