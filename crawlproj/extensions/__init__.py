"""Scrapy extensions; each can be switched off in EXTENSIONS."""
