"""A run as one page for people: what was stored, in numbers and charts."""
