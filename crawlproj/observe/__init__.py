"""What processes tell about themselves. Everybody reports here; nothing depends on it."""
