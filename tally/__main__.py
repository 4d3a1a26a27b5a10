"""`python -m tally`: the command `tally`."""

from tally.main import run

run()
