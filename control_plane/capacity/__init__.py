"""From a load to a fleet: a pure model in which every number knows its formula."""
