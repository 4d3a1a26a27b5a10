"""Computes counters again and compares: log -> scan -> recount, on bases, by a sampler too."""
