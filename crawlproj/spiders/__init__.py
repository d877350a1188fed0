"""The spiders: `web`, and whatever people add."""
