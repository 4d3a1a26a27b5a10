"""Charts of the results: bars and lines in the terminal, and the same as PNG."""
