"""Folds: closer -> rollup -> retention."""
