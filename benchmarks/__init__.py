"""What Tally costs, as figures beside their targets. `make bench` prints them."""

import os

# gRPC tells every connection that a stopped server ended, in between the progress of a run. It
# looks at this once, when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
