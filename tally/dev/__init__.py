"""Real Cassandra and memcached on loopback, without containers: for developers and for tests."""
