"""Linking providers by OAuth, and importing their projects."""
