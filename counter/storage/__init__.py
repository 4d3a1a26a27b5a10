"""Ports, and one folder of adapters per store. `*/event_log.py` is the support matrix."""
