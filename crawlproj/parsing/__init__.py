"""What a parser does with a page: decode it, read it, store it, admit its links. No Scrapy."""
