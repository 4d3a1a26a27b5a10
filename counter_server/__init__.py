"""Takes requests: service -> admission -> strategy -> commit, and back."""
