"""Every option of a crawl, once, grouped by what a person wants to change: default, limits, one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crawlproj.config.declare import CHANGEABLE, FIXED, PROCESS, belong_to, group, ours, theirs
from crawlproj.model.urls import DROPPED_PARAMETERS, SKIPPED_EXTENSIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The options of one process. Build it with `load_config`, which checks them."""

    group("Who is crawling", "What site owners learn about you.")
    belong_to(CHANGEABLE)
    contact: str | None = ours(
        None,
        "An email address or URL where site owners can reach you. It becomes part of the user agent; "
        "without it, public addresses are not crawled.",
    )
    belong_to(FIXED)
    arguments: Mapping[str, Any] = ours(
        {}, "Arguments of the spider of the run: `scrapy run --spider S -a NAME=VALUE`."
    )
    user_agent: str = theirs("crawlproj/0.1", "The user agent; CRAWL_CONTACT is appended to it.")

    group("Which pages", "Which links are followed; [urls.md](urls.md) has examples.")
    belong_to(CHANGEABLE)
    scope: str = ours(
        "sites",
        "Which links are followed: those to the hosts of the seeds and all hosts below them (sites), all of "
        "them (everything), those within the domain or the host of the linking page, those to "
        "CRAWL_SCOPE_DOMAINS (list), or none (seeds).",
        choices=("sites", "everything", "domain", "host", "list", "seeds"),
    )
    scope_domains: tuple[str, ...] = ours(
        (), 'Domains and hosts for the scope "list"; their subdomains are included.', optional=True
    )
    include: tuple[str, ...] = ours(
        (), "Regular expressions; only links whose URL matches at least one are followed.", optional=True
    )
    exclude: tuple[str, ...] = ours(
        (), "Regular expressions; URLs that match any of them are not fetched.", optional=True
    )
    depth_limit: int = theirs(0, "Maximum number of links from a seed to a page; 0 for no limit.", least=0)
    domain_pages: int = ours(0, "Maximum number of URLs admitted per domain; 0 for no limit.", least=0)
    skip_extensions: tuple[str, ...] = ours(
        SKIPPED_EXTENSIONS, "Links to files with these extensions are not followed.", optional=True
    )
    belong_to(FIXED)
    exclude_file: str | None = ours(
        None,
        "A file of domains, host/path prefixes and re:PATTERN lines that are not fetched; reloaded when it "
        "changes.",
    )
    link_tags: tuple[str, ...] = ours(
        ("a", "area", "frame"),
        'HTML elements whose links are followed; "link" stands for rel=next.',
        choices=("a", "area", "iframe", "frame", "link"),
    )
    max_links: int = ours(5000, "Maximum number of links followed per page.", least=0, most=1_000_000)
    max_redirects: int = ours(
        5, "Maximum number of redirects in a row, including `<meta http-equiv=refresh>`.", least=0, most=100
    )
    max_url: int = ours(2048, "Maximum length of a URL in characters.", least=64, most=2048)
    drop_parameters: tuple[str, ...] = ours(
        DROPPED_PARAMETERS,
        "Tracking parameters to remove from every query string; a trailing `*` matches any suffix.",
        optional=True,
    )
    allow_addresses: tuple[str, ...] = ours(
        (), "Non-public addresses and networks that may be crawled, such as 127.0.0.0/8.", optional=True
    )

    group("Crawler traps", "URLs over any of these limits look like a trap: they are kept, but not fetched.")
    belong_to(FIXED)
    trap_segments: int = ours(3, "Maximum number of times a segment may repeat in a path.", least=1)
    trap_depth: int = ours(20, "Maximum number of segments in a path.", least=1)
    trap_parameters: int = ours(12, "Maximum number of query parameters.", least=0)
    trap_variants: int = ours(
        1000, "Maximum number of URLs per domain that differ only in numbers or parameters.", least=1
    )
    parked_urls: int = ours(
        100_000, "How many suspected traps to keep for review; the oldest are dropped first.", least=0
    )

    group("robots.txt, robots meta tags and sitemaps", "What sites ask of crawlers: [robots.md](robots.md).")
    belong_to(FIXED)
    robotstxt_obey: bool = theirs(True, "Fetch and obey robots.txt.")
    robotstxt_user_agent: str | None = theirs(
        None, "The product token to look up in robots.txt; the default is the first word of USER_AGENT."
    )
    robots_seconds: float = ours(
        86400.0,
        "How long a robots.txt is cached; always at least twice the delay of its site.",
        least=1,
        most=604800,
    )
    obey_noindex: bool = ours(
        True, "Store no text of pages marked noindex by a robots meta tag or X-Robots-Tag."
    )
    obey_nofollow: bool = ours(
        True, "Follow no links of pages marked nofollow by a robots meta tag or X-Robots-Tag."
    )
    obey_rel_nofollow: bool = ours(True, "Do not follow links with rel=nofollow.")
    sitemaps: bool = ours(False, "Read the sitemaps listed in robots.txt.")
    sitemap_bytes: int = ours(50_000_000, "Maximum size of a sitemap, decompressed.", least=1024)
    sitemap_urls: int = ours(50_000, "Maximum number of URLs taken from a sitemap.", least=1)
    belong_to(PROCESS)
    robots_bytes: int = ours(
        64_000_000, "Maximum memory in Redis for the cached robots.txt files of all sites.", least=65_536
    )

    group(
        "How politely", "The load on a site, and what happens when it fails: [politeness.md](politeness.md)."
    )
    belong_to(CHANGEABLE)
    download_delay: float = theirs(
        1.0,
        "Seconds between the end of a request to a domain and the start of the next.",
        least=0,
        most=86400,
    )
    download_slots: Mapping[str, Mapping[str, Any]] = theirs(
        {},
        'Per domain: {"example.org": {"delay": 5}}, {"my-own-site.org": {"delay": 0, "concurrency": 8}}.',
        example='{"example.org": {"delay": 5}}',
    )
    delay_factor: float = ours(
        1.0, "The delay is at least this many times the domain's last response time.", least=0, most=100
    )
    max_delay_seconds: float = ours(
        300.0, "Longest Crawl-delay that is honoured; longer ones count as this.", least=0, most=86400
    )
    domain_bytes: int = ours(0, "Park a domain after this many fetched bytes; 0 for no limit.", least=0)
    belong_to(FIXED)
    share_delays: bool = ours(
        True, "Share the delay of a domain with other runs on the same Redis server, but not on a Cluster."
    )
    ip_delay: float = ours(
        0.0,
        "Seconds between the end of a request to an IP address and the start of the next, across all domains "
        "and shards; 0 for none.",
        least=0,
        most=3600,
    )
    backoff_seconds: float = ours(
        10.0,
        "First wait after a 429, a 503 or a failed request; it doubles with each further one in a row.",
        least=0.1,
        most=3600,
    )
    max_backoff_seconds: float = ours(
        3600.0,
        "Longest such wait. A domain whose Retry-After is longer is parked until then.",
        least=0.1,
        most=86400,
    )
    give_up_failures: int = ours(
        6,
        "Park a domain after this many failures in a row, one that was never reached after 3 at most; its "
        "URLs are kept, and the run can end without them. 0 for never.",
        least=0,
        most=1000,
    )
    parked_seconds: float = ours(
        3600.0, "How long a domain stays parked; twice as long each time.", least=1, most=31_536_000
    )

    group("How much at once", "Concurrency and batch sizes, and when shards slow down for the parsers.")
    concurrent_requests: int = theirs(
        128, "How many domains a shard fetches from concurrently.", least=1, most=10_000
    )
    direct: bool = ours(
        True,
        "Fetch the pages of the spider `web` directly, not through Scrapy's engine, unless components of "
        "yours are in between (docs/direct.md).",
    )
    lease_batch: int = ours(256, "How many URLs a shard leases per round trip.", least=1, most=10_000)
    chain: int = ours(16, "How many URLs of one domain are leased together.", least=1, most=1000)
    chain_seconds: float = ours(
        10.0, "Lease no more URLs of a domain than its delay allows in this time.", least=0, most=3600
    )
    parse_batch: int = ours(32, "How many pages a parser takes at once.", least=1, most=1000)
    page_queue_soft: int = ours(2000, "Shards lease less when more pages than this are queued.", least=1)
    page_queue_hard: int = ours(
        4000,
        "Shards stop leasing at this many queued pages until the queue is below the soft limit.",
        least=1,
    )
    page_queue_soft_bytes: int = ours(
        64_000_000, "Shards lease less when more bytes than this are queued.", least=1
    )
    page_queue_hard_bytes: int = ours(
        128_000_000,
        "Shards stop leasing at this many queued bytes until the queue is below the soft limit.",
        least=1,
    )
    spill_share: float = ours(
        0.85,
        "From this share of Redis' `maxmemory` on, parsers write links to disk instead of admitting them. "
        "Half-way between it and 1, shards lease nothing until the queued pages are stored.",
        least=0.1,
        most=0.99,
    )

    group("Limits of a download", "How large and how slow a response may be, and how often it is retried.")
    download_timeout: float = theirs(
        30.0, "Total seconds for a download; must be below CRAWL_LEASE_SECONDS.", least=0.1, most=3600
    )
    connect_seconds: float = ours(10.0, "Timeout for connecting, including TLS.", least=0.1, most=600)
    header_seconds: float = ours(
        20.0, "Timeout for the response headers after the request was sent.", least=0.1, most=3600
    )
    idle_seconds: float = ours(15.0, "Timeout between two reads of a response body.", least=0.1, most=3600)
    max_headers: int = ours(131_072, "Maximum size of the response headers in bytes.", least=1024)
    belong_to(FIXED)
    max_body: int = ours(
        5_000_000,
        "Maximum size of a body in bytes, both as sent and decompressed. Longer bodies are cut; the row is "
        "marked `truncated`, and `scrapy status` counts it.",
        least=1024,
    )
    content_types: tuple[str, ...] = ours(
        (
            "text/html",
            "application/xhtml+xml",
            "text/plain",
            "text/xml",
            "application/xml",
            "application/rss+xml",
            "application/atom+xml",
            "application/rdf+xml",
            "application/feed+json",
        ),
        "Media types whose bodies are downloaded (text/* for all text); of others only the headers are.",
        optional=True,
    )
    max_attempts: int = ours(3, "Attempts per URL before it counts as failed.", least=1, most=100)
    download_fail_on_dataloss: bool = theirs(
        True, "Treat an incomplete body as a failure; the last attempt keeps what arrived."
    )
    download_verify_certificates: bool = theirs(True, "Require a trusted TLS certificate.")

    group("Connections and DNS", "What is kept open and cached between requests.")
    idle_connections: int = ours(
        768,
        "Maximum number of idle connections; useful up to the number of sites visited within "
        "CRAWL_KEEP_ALIVE_SECONDS.",
        least=0,
        most=100_000,
    )
    idle_per_host: int = ours(2, "Maximum number of idle connections per host.", least=0, most=1000)
    keep_alive_seconds: float = ours(15.0, "How long an idle connection is kept.", least=0, most=3600)
    dns_timeout: float = theirs(10.0, "Timeout for resolving a name.", least=0.1, most=600)
    dnscache_enabled: bool = theirs(True, "Cache resolved names.")
    dnscache_size: int = theirs(10_000, "Maximum number of cached names.", least=1)
    dns_seconds: float = ours(300.0, "How long the addresses of a name are cached.", least=0, most=86400)
    dns_failure_seconds: float = ours(60.0, "How long a failed lookup is cached.", least=0, most=86400)

    group("Text", "What is extracted from a page: [extraction.md](extraction.md).")
    belong_to(FIXED)
    text: str = ours(
        "main",
        "The text of a page: its main content without menus, teasers and footers, or all visible text.",
        choices=("main", "all"),
        renamed={"fast": "main", "article": "main"},
    )
    full_text: bool = ours(False, "Also store all visible text, including navigation.")
    headings: bool = ours(False, "Also store the headings and their levels.")
    store_links: bool = ours(False, "Also store the links, not only their number.")
    belong_to(CHANGEABLE)
    fields: Mapping[str, Any] = ours(
        {},
        'Your own columns: {"price": "css:.price::text", "author": "xpath://meta[1]/@content"}.',
        example='{"price": "css:.price::text"}',
    )

    group("Storage", "Where pages are written, and in which format.")
    data: Path = ours(Path("data"), "The directory for pages, logs and the embedded Redis.")
    belong_to(FIXED)
    page_store: tuple[str, ...] = theirs(
        ("parquet",), 'Storage format, or several: "parquet,warc".', choices=("parquet", "jsonl", "warc")
    )
    store: str | None = ours(None, "An object store for pages and items: s3://BUCKET/PREFIX; see storage.md.")
    belong_to(PROCESS)
    segment_pages: int = ours(10_000, "Close a segment at this many pages.", least=1)
    segment_bytes: int = ours(64_000_000, "Close a segment at this many bytes.", least=1024)
    compact_bytes: int = ours(0, "`scrapy run` merges small segments to this size; 0 for never.", least=0)
    segment_seconds: float = ours(30.0, "Close a segment at this age.", least=0.1, most=3600)

    group("Redis", "Where the state of a run is kept.")
    redis_url: str | None = theirs(
        None, "The Redis server, Cluster or Sentinels; the default is embedded, in CRAWL_DATA.", secret=True
    )
    redis_server: str | None = theirs(
        None,
        "The redis-server to start without REDIS_URL; the default is the newest on this machine that can "
        "read the data in CRAWL_DATA.",
    )
    redis_params: Mapping[str, Any] = theirs(
        {}, "Additional options for the Redis client.", secret=True, example='{"username": "crawler"}'
    )
    redis_password_file: str | None = theirs(
        None, "A file that contains the Redis password, to keep it out of REDIS_URL and REDIS_PARAMS."
    )
    redis_wait_seconds: float = ours(
        300.0, "How long a process waits for an unreachable Redis before it exits.", least=0, most=86400
    )

    group("Runs and processes", "Names, leases, parsers, and how a crawl starts and stops.")
    run: str = ours("", "The name of the run; the default is the name of the spider.")
    partitions: int = ours(
        64,
        "Number of partitions, the upper limit for shards. Fixed when the run is created.",
        least=1,
        most=4096,
    )
    lease_seconds: float = ours(
        300.0, "How long a URL is leased to a shard; must exceed DOWNLOAD_TIMEOUT.", least=1, most=86400
    )
    shard_lease_seconds: float = ours(
        30.0, "How long a shard that stops responding keeps its number and partitions.", least=1, most=3600
    )
    drain_seconds: float = ours(
        10.0, "How long downloads in progress may take to finish after a stop request.", least=0, most=3600
    )
    parse: str = ours(
        "auto",
        "Where pages are parsed and items stored: in the shard (inline), in parser processes (processes), or "
        "in a shard without -a shard, or of a spider other than `web` outside `scrapy run` (auto).",
        choices=("auto", "inline", "processes"),
    )
    parse_seconds: float = ours(10.0, "Time limit for parsing a page.", least=0.1, most=3600)
    parser_memory: int = ours(
        2_000_000_000,
        "Memory limit of a parser in bytes; a page that needs more becomes a dead letter.",
        least=500_000_000,
    )
    page_attempts: int = ours(
        3, "Parsing attempts per page before it becomes a dead letter.", least=1, most=100
    )
    dead_letter_bytes: int = ours(
        64_000_000,
        "Maximum size of a run's dead letters in Redis; the oldest beyond it are on disk.",
        least=0,
    )
    scheduler_persist: bool = theirs(True, "Keep the frontier when the crawl has ended.")
    scheduler_flush_on_start: bool = theirs(False, "Empty the run before it starts.")
    scheduler_idle_before_close: float = theirs(
        0.0, "Seconds an idle shard waits for new work before it closes.", least=0, most=86400
    )
    supervisor: int = ours(
        0, "The PID of the supervisor: the process stops when it is gone. Set by `scrapy run`.", least=0
    )

    group("Seeing what it does", "Logs and Prometheus: [metrics.md](metrics.md).")
    log: str = ours(
        "auto",
        "Log format: text, one JSON object per line, or text on a terminal and JSON otherwise (auto).",
        choices=("auto", "text", "json"),
    )
    figures_seconds: float = ours(
        10.0, "How often processes publish their metrics and log their progress.", least=0.1, most=3600
    )
    metrics_port: int = ours(
        0,
        "First Prometheus port. Shard N serves at port + N, parser N at port + 100 + N, the supervisor at "
        "port + 200. 0 for no metrics.",
        least=0,
        most=65_000,
    )
    metrics_host: str = ours("127.0.0.1", "The address the metrics are served at; 0.0.0.0 for all.")
    metrics_shared: bool = ours(False, "Serve the metrics of a run's processes on a host at one port.")

    group("Serving", "The jobs API and the web page, `scrapy serve`: [api.md](api.md).")
    jobs_at_once: int = ours(2, "Jobs that run on a machine at once; others wait.", least=1, most=100)
    jobs_on: tuple[str, ...] = ours((), "Run jobs on these scrapyd servers.", optional=True, secret=True)
    jobs_waiting: int = ours(1000, "Jobs that may wait or run; more are refused.", least=1, most=100_000)
    api_tokens: str | None = ours(None, "Tokens: `read TOKEN`, `write TOKEN`, ...", secret=True)
    api_tokens_file: str | None = ours(None, "A file of tokens, one on each line.")
    api_hosts: tuple[str, ...] = ours((), "Host names of the server; others are refused.", optional=True)
    api_rate: float = ours(200.0, "Requests per second of a client; 0 for no limit.", least=0, most=1e6)

    @property
    def contact_user_agent(self) -> str:
        """Return the user agent with the contact in it."""
        if self.contact is None or self.contact in self.user_agent:
            return self.user_agent
        return f"{self.user_agent} (+{self.contact})"

    @property
    def robots_agent(self) -> str:
        """Return the product token that robots.txt is asked about."""
        return self.robotstxt_user_agent or re.split(r"[/\s]", self.user_agent, maxsplit=1)[0]
