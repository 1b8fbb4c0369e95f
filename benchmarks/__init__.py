"""Measurements that people start by hand: each module says how."""
