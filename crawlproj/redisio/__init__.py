"""The door to Redis: the only package that imports redis-py."""
