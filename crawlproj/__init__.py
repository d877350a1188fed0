"""A polite, sharded, resumable web crawler on Scrapy and Redis."""
