"""Pages on their way from the shards to the parsers."""
