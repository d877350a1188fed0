"""Scrapy's wiring, and the place where people tune a crawl. The only reader of the environment.

Every option, with its limits, is in docs/settings.md. What is set here is what a crawl does when nothing
else is said; `-s NAME=VALUE` on the command line goes over it.
"""

from __future__ import annotations

import os

# --- Who is crawling ------------------------------------------------------------------------------------

#: How people whose sites you visit can reach you: a mail address or a URL. It becomes part of the user agent;
#: without it only addresses that CRAWL_ALLOW_ADDRESSES names are crawled.
CRAWL_CONTACT = os.environ.get("CRAWL_CONTACT") or None
USER_AGENT = "crawlproj/0.1"
ROBOTSTXT_OBEY = True

# --- How politely ---------------------------------------------------------------------------------------

#: Seconds between the end of one request to a domain and the start of the next. A longer Crawl-delay in
#: robots.txt goes over it.
DOWNLOAD_DELAY = 1.0

#: Other values for single domains, as in
#: {"example.org": {"delay": 5}, "my-own-site.org": {"delay": 0, "concurrency": 8}}
DOWNLOAD_SLOTS: dict[str, dict[str, float | int]] = {}

#: Scrapy would vary the delay by half; ours is a promise, so it is kept exactly.
DOWNLOAD_DELAY_JITTER = 0.0

# --- How much at once -----------------------------------------------------------------------------------

#: Domains a shard fetches from at the same time: each has one request in flight.
CONCURRENT_REQUESTS = 128
#: The short way through Scrapy (docs/fast.md); CRAWL_FAST=0 in the environment goes Scrapy's own.
CRAWL_FAST = os.environ.get("CRAWL_FAST", "1") != "0"
DOWNLOAD_TIMEOUT = 30
#: Links from a seed to the last page fetched; 0 means no limit.
DEPTH_LIMIT = 0

# --- Where things are -----------------------------------------------------------------------------------

#: None: a Redis of our own is started under CRAWL_DATA. Otherwise "redis://:password@host:6379/0".
REDIS_URL = os.environ.get("REDIS_URL") or None
#: A file with its password, where that should not be part of the URL: in containers.
REDIS_PASSWORD_FILE = os.environ.get("REDIS_PASSWORD_FILE") or None
CRAWL_DATA = os.environ.get("CRAWL_DATA") or "data"

# --- Scrapy's wiring: change it only if you know why ----------------------------------------------------

BOT_NAME = "crawlproj"
SPIDER_MODULES = ["crawlproj.spiders"]
NEWSPIDER_MODULE = "crawlproj.spiders"
COMMANDS_MODULE = "crawlproj.commands"
SCHEDULER = "crawlproj.scheduler.Scheduler"
TWISTED_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"

ITEM_PIPELINES = {"crawlproj.pipelines.PageQueuePipeline": 900}
#: One page makes one item; Scrapy's 100 would start 100 tasks for it (0.6 ms a page).
CONCURRENT_ITEMS = 1

#: The frontier fetches robots.txt itself, as a request of that domain in its turn, so Scrapy's own is off.
DOWNLOADER_MIDDLEWARES = {
    "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
    "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None,
    "crawlproj.middlewares.Introduction": 500,
    "crawlproj.middlewares.DomainFeedback": 950,
}

#: Our own HTTP client: bounded in every way, tolerant of broken servers, and it asks the address guard before
#: every connection (docs/safety.md). Another handler does not.
DOWNLOAD_HANDLERS = {
    "http": "crawlproj.download.handler.HttpHandler",
    "https": "crawlproj.download.handler.HttpHandler",
}
DOWNLOAD_VERIFY_CERTIFICATES = True
#: Names are resolved by the system, v4 and v6, and kept for CRAWL_DNS_SECONDS.
TWISTED_DNS_RESOLVER = "crawlproj.download.resolver.SystemResolver"
DNS_TIMEOUT = 10

#: A line now and then that knows the frontier, in place of the one that does not; fewer searches for garbage; parsing
#: in the shard when it is alone.
EXTENSIONS = {
    "scrapy.extensions.logstats.LogStats": None,
    "crawlproj.extensions.summary.ShardSummary": 0,
    "crawlproj.extensions.collector.CalmCollector": 0,
    "crawlproj.single.InlineParser": 0,
}

#: Both run Python for whoever can connect.
TELNETCONSOLE_ENABLED = False
REMOTE_CONTROL_ENABLED = False

LOG_LEVEL = "INFO"
#: Text at a terminal, JSON elsewhere (CRAWL_LOG); files are rotated.
ADDONS = {"crawlproj.extensions.logs.ProcessLog": 0}
