"""Namespace files: what admins write, read with its places, and described for editors."""
