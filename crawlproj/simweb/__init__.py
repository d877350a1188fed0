"""The simulated web: a deterministic world of pages, its server, and the referee who judges crawls of it."""
