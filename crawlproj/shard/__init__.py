"""One fetch process: a Scrapy crawler that fetches what its partitions of the frontier lend it."""
