"""Decides which namespaces there are: reads them, checks them, and swaps them as one snapshot."""
