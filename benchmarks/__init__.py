"""Measurements that are started by hand. Each module describes how."""
