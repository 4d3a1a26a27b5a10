"""What Tally costs, as figures beside their targets. `make bench` prints them."""
