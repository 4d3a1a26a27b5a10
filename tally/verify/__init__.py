"""The history checkers: does a recorded history of calls keep what Tally promises?

`history` is the model of a history and its file; one module per promise has the rules; `check` runs
them all. Nothing here knows a clock, a network or a server, so tests, simulations and the command
`tally verify` share it.
"""
