"""The shared library: words, codecs, the fold and the ports. Programs build on it."""
