"""What a running job is doing, read from its arenas without a port: status and flight records."""
