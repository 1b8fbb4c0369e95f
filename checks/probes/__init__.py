"""The probe core: plain Python on libcurl, a CheckSpec in, a CheckOutcome out."""

from checks.probes.engine import ProbeEngine

__all__ = ["ProbeEngine"]
