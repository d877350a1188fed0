"""Scrapy's wiring and the defaults of a crawl. The only reader of the environment but supervisor/child.py.

Every option, with its limits, is in docs/settings.md. `-s NAME=VALUE` on the command line overrides what is set
here.
"""

from __future__ import annotations

import os

# --- Who is crawling ------------------------------------------------------------------------------------

#: How site owners can reach you: a mail address or a URL, added to the user agent. Without it only the addresses
#: in CRAWL_ALLOW_ADDRESSES are crawled.
CRAWL_CONTACT = os.environ.get("CRAWL_CONTACT") or None
USER_AGENT = "crawlproj/0.1"
ROBOTSTXT_OBEY = True

# --- How politely ---------------------------------------------------------------------------------------

#: Seconds between the end of one request to a domain and the start of the next. A longer Crawl-delay in
#: robots.txt overrides it.
DOWNLOAD_DELAY = 1.0

#: Other values for single domains, for example
#: {"example.org": {"delay": 5}, "my-own-site.org": {"delay": 0, "concurrency": 8}}
DOWNLOAD_SLOTS: dict[str, dict[str, float | int]] = {}

#: Scrapy would vary the delay by half; here it is guaranteed.
DOWNLOAD_DELAY_JITTER = 0.0

# --- How much at once -----------------------------------------------------------------------------------

#: How many domains a shard fetches from at once, one request each.
CONCURRENT_REQUESTS = 128
#: In Scrapy's own tools (docs/tools.md); a run has "concurrency" in DOWNLOAD_SLOTS.
CONCURRENT_REQUESTS_PER_DOMAIN = 1
#: Fetch pages directly where nothing is missed by it (docs/direct.md); CRAWL_DIRECT=0 in the environment: never.
CRAWL_DIRECT = os.environ.get("CRAWL_DIRECT", "1") != "0"
DOWNLOAD_TIMEOUT = 30
#: At most this many links away from a seed; 0 means no limit.
DEPTH_LIMIT = 0

# --- Where things are -----------------------------------------------------------------------------------

#: None: an embedded Redis is started under CRAWL_DATA. Otherwise "redis://:password@host:6379/0".
REDIS_URL = os.environ.get("REDIS_URL") or None
#: The redis-server to start there; None: the newest on this machine that can read its data.
REDIS_SERVER = os.environ.get("REDIS_SERVER") or None
#: A file with its password, to keep that out of the URL in containers.
REDIS_PASSWORD_FILE = os.environ.get("REDIS_PASSWORD_FILE") or None
CRAWL_DATA = os.environ.get("CRAWL_DATA") or "data"
#: Who may use `scrapy serve` (docs/api.md): tokens, or a file of them.
CRAWL_API_TOKENS = os.environ.get("CRAWL_API_TOKENS") or None
CRAWL_API_TOKENS_FILE = os.environ.get("CRAWL_API_TOKENS_FILE") or None
#: The scrapyd servers that its jobs run on; their addresses may have passwords.
CRAWL_JOBS_ON = os.environ.get("CRAWL_JOBS_ON") or ()

#: Which of these the environment has set: a person gave them, as on the command line (docs/rules.md).
FROM_ENVIRONMENT = [name for name in ("CRAWL_CONTACT",) if os.environ.get(name)]

# --- Scrapy's wiring: change it only if you know why ----------------------------------------------------

BOT_NAME = "crawlproj"
SPIDER_MODULES = ["crawlproj.spiders"]
NEWSPIDER_MODULE = "crawlproj.spiders"
COMMANDS_MODULE = "crawlproj.commands"
SCHEDULER = "crawlproj.scheduler.Scheduler"
TWISTED_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"

ITEM_PIPELINES = {"crawlproj.pipelines.PageQueuePipeline": 900}
#: One page is one item; Scrapy's default would start 100 tasks for it (0.6 ms per page).
CONCURRENT_ITEMS = 1

#: The frontier schedules robots.txt as one of the domain's requests, so Scrapy's middleware is off.
DOWNLOADER_MIDDLEWARES = {
    "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
    "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None,
    "crawlproj.middlewares.UserAgentMiddleware": 500,
    "crawlproj.middlewares.DomainFeedback": 840,
}

#: Our HTTP client: bounded in every way, tolerant of broken servers, and it checks the address guard before every
#: connection (docs/safety.md). Other handlers do not.
DOWNLOAD_HANDLERS = {
    "http": "crawlproj.download.handler.HttpHandler",
    "https": "crawlproj.download.handler.HttpHandler",
}
DOWNLOAD_VERIFY_CERTIFICATES = True
#: Names are resolved by the system, IPv4 and IPv6, and cached for CRAWL_DNS_SECONDS.
TWISTED_DNS_RESOLVER = "crawlproj.download.resolver.SystemResolver"
DNS_TIMEOUT = 10

#: The parser of single mode; a shard logs its progress itself, since LogStats does not know the frontier.
EXTENSIONS = {
    "scrapy.extensions.logstats.LogStats": None,
    "crawlproj.shard.single.InlineParser": 0,
}

#: Both run Python for anyone who can connect.
TELNETCONSOLE_ENABLED = False
REMOTE_CONTROL_ENABLED = False

LOG_LEVEL = "INFO"
ADDONS = {
    #: Text at a terminal, JSON elsewhere (CRAWL_LOG); files are rotated.
    "crawlproj.extensions.logs.ProcessLog": 0,
    #: A spider's own middlewares, handlers and extensions are added to those above.
    "crawlproj.extensions.components.SpiderComponents": 900,
    #: `scrapy shell`, `fetch`, `parse` and the like need no run and no Redis (docs/tools.md).
    "crawlproj.extensions.tools.ToolSettings": 1000,
}
