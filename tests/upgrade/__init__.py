"""Databases of earlier versions. Each that was released, or that an operator may have, must find its way up."""
