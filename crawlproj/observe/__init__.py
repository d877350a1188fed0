"""What processes report about themselves. Every room reports here; nothing depends on it."""
