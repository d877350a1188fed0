"""Running a whole crawl on this machine: shards and parsers as child processes."""
