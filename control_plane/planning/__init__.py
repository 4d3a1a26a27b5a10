"""What a change of the namespaces would do, field by field, and what comes of it."""
