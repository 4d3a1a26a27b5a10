"""One module per command, or per group of commands that share their output."""
