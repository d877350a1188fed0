"""Scrapy extensions of this project; each can be switched off in EXTENSIONS."""
