"""Scrapy add-ons, which run before anything else."""
