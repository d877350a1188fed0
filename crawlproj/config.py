"""Every option of a crawl, once: its default, type, limits and one sentence.

``docs/settings.md`` is printed from here by ``python -m crawlproj.config``. Nothing here reads the
environment or Scrapy's settings; the caller hands over a plain mapping.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from crawlproj.errors import BadSetting
from crawlproj.model.urls import DROPPED_PARAMETERS, SKIPPED_EXTENSIONS

logger = logging.getLogger(__name__)

#: A run's name becomes a directory and a part of every key.
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PREFIX = "CRAWL_"
_CONTACT = re.compile(r"[^\s()<>@]+@[^\s()<>@]+\.[^\s()<>@]+|https?://[^\s()<>]+")


def ours(default: Any, sentence: str, **rules: Any) -> Any:
    """Declare an option of this project, read from ``CRAWL_<ATTRIBUTE>``."""
    return _declare(default, sentence, PREFIX, rules)


def theirs(default: Any, sentence: str, **rules: Any) -> Any:
    """Declare an option under the name that Scrapy or scrapy-redis gave it, ``<ATTRIBUTE>``."""
    return _declare(default, sentence, "", rules)


def _declare(default: Any, sentence: str, prefix: str, rules: dict[str, Any]) -> Any:
    rules = {
        "least": None,
        "most": None,
        "choices": (),
        "renamed": {},
        "secret": False,
        "optional": False,
        **rules,
    }
    metadata = {"sentence": sentence, "prefix": prefix, **rules}
    shown = not rules["secret"]
    if isinstance(default, dict):
        return field(default_factory=dict, repr=shown, metadata=metadata)
    return field(default=default, repr=shown, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The options of one process. Build it with `load_config`, which checks them."""

    data: Path = ours(Path("data"), "The directory for pages, logs and the embedded Redis.")
    run: str = ours("", "The name of the run; empty means the name of the spider.")
    partitions: int = ours(
        64,
        "Slices of all domains; fixed when a run is created, and the limit of its shards.",
        least=1,
        most=4096,
    )
    shard_lease_seconds: float = ours(
        30.0,
        "How long a silent shard keeps its number and its partitions before others take them over.",
        least=1,
        most=3600,
    )
    lease_seconds: float = ours(
        300.0,
        "How long a URL is lent to a shard; must exceed DOWNLOAD_TIMEOUT.",
        least=1,
        most=86400,
    )
    chain: int = ours(16, "How many URLs of one domain are lent at once.", least=1, most=1000)
    chain_seconds: float = ours(
        10.0, "A chain takes no longer than this at its domain's delay.", least=0, most=3600
    )
    lease_batch: int = ours(256, "How many URLs a shard leases in one round trip.", least=1, most=10_000)
    max_attempts: int = ours(3, "How often a URL is tried before it counts as failed.", least=1, most=100)
    max_redirects: int = ours(
        5,
        "How many redirects in a row are followed, those of `<meta http-equiv=refresh>` among them.",
        least=0,
        most=100,
    )
    drain_seconds: float = ours(
        10.0,
        "How long downloads in flight may go on after a stop was asked for.",
        least=0,
        most=3600,
    )
    redis_wait_seconds: float = ours(
        300.0,
        "How long a Redis that went away is waited for before the process gives up.",
        least=0,
        most=86400,
    )
    domain_pages: int = ours(0, "How many URLs of a domain are admitted; 0 means no limit.", least=0)
    domain_bytes: int = ours(
        0, "How many bytes are fetched from a domain before it is parked; 0 means no limit.", least=0
    )
    delay_factor: float = ours(
        1.0,
        "A domain rests at least this many times its last response time between requests.",
        least=0,
        most=100,
    )
    max_delay_seconds: float = ours(
        300.0, "No Crawl-delay makes a domain wait longer than this.", least=0, most=86400
    )
    backoff_seconds: float = ours(
        10.0,
        "The first wait after a 429, a 503 or a failure; it doubles with each more in a row.",
        least=0.1,
        most=3600,
    )
    max_backoff_seconds: float = ours(
        3600.0,
        "The longest of these waits. A domain that asks for a longer one (Retry-After) is parked until then.",
        least=0.1,
        most=86400,
    )
    give_up_failures: int = ours(
        6,
        "A domain that failed this often in a row is parked: its URLs are kept, and the run can end "
        "without them; 0 means never.",
        least=0,
        most=1000,
    )
    parked_seconds: float = ours(
        3600.0,
        "How long such a domain stays parked before it is tried again, if the run still goes on then.",
        least=1,
        most=31_536_000,
    )
    fast: bool = ours(
        True,
        "Take the short way through Scrapy (docs/fast.md); off: half as much CPU more.",
    )
    ip_delay: float = ours(
        0.0,
        "Seconds between the end of one request to an IP address and the next, whatever its domain and "
        "shard; 0 means that addresses do not matter.",
        least=0,
        most=3600,
    )
    contact: str | None = ours(
        None,
        "How people whose sites are visited can reach you: a mail address or a URL. It stands in the user "
        "agent; public addresses are not crawled without.",
    )
    allow_addresses: tuple[str, ...] = ours(
        (),
        "Addresses and networks that may be crawled although they are private, loopback or otherwise not "
        "public: 127.0.0.0/8.",
        optional=True,
    )
    robots_seconds: float = ours(
        86400.0,
        "How long a robots.txt is believed before it is fetched again; at least twice its site's delay.",
        least=1,
        most=604800,
    )
    robots_bytes: int = ours(
        64_000_000, "How much of Redis the robots.txt of all sites may take.", least=65_536
    )
    obey_noindex: bool = ours(
        True, "Whether of a page that says noindex, in a robots meta or in X-Robots-Tag, no text is stored."
    )
    sitemaps: bool = ours(False, "Whether the sitemaps that robots.txt names are read for URLs.")
    sitemap_bytes: int = ours(50_000_000, "How many bytes of a sitemap are read, inflated.", least=1024)
    sitemap_urls: int = ours(50_000, "How many URLs of a sitemap are taken.", least=1)
    drop_parameters: tuple[str, ...] = ours(
        DROPPED_PARAMETERS,
        "Query parameters that say who came and not what is shown; they are cut from every URL. A star at "
        "the end stands for any more letters.",
        optional=True,
    )
    scope: str = ours(
        "everything",
        "Which links are followed: all, those within the domain or the host of their page, those to "
        "CRAWL_SCOPE_DOMAINS (list), or none (seeds).",
        choices=("everything", "domain", "host", "list", "seeds"),
    )
    scope_domains: tuple[str, ...] = ours(
        (), 'Domains and hosts of the scope "list", with all below them.', optional=True
    )
    include: tuple[str, ...] = ours(
        (), "Regular expressions; a link is followed only if its URL matches one of them.", optional=True
    )
    exclude: tuple[str, ...] = ours(
        (), "Regular expressions; a URL that matches one of them is not fetched.", optional=True
    )
    exclude_file: str | None = ours(
        None,
        "A file of domains, host/path beginnings and re:PATTERN lines that are not fetched; read again "
        "when it changes.",
    )
    skip_extensions: tuple[str, ...] = ours(
        SKIPPED_EXTENSIONS, "Links to files with these endings are not followed.", optional=True
    )
    max_url: int = ours(2048, "How many characters a URL may have.", least=64, most=2048)
    trap_segments: int = ours(
        3, "A URL in whose path a segment comes back more often than this is taken for a trap.", least=1
    )
    trap_depth: int = ours(20, "So is one whose path has more segments than this.", least=1)
    trap_parameters: int = ours(12, "And one with more query parameters than this.", least=0)
    trap_variants: int = ours(
        1000, "How many URLs that differ only in numbers or parameters a domain is asked for.", least=1
    )
    parked_urls: int = ours(
        100_000, "How many URLs taken for traps are kept to be looked at; the oldest go first.", least=0
    )
    max_body: int = ours(
        2_000_000,
        "How many bytes of a body are read, both as sent and inflated; of a longer page the rest is missing, "
        "its row says so (truncated) and `scrapy status` counts it.",
        least=1024,
    )
    max_headers: int = ours(131_072, "How many bytes the head of a response may have.", least=1024)
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
        "Media types whose bodies are read; of others only the head is. text/* stands for all text.",
        optional=True,
    )
    connect_seconds: float = ours(10.0, "How long a connection may take, TLS included.", least=0.1, most=600)
    header_seconds: float = ours(
        20.0, "How long the head of a response may take after the request was sent.", least=0.1, most=3600
    )
    idle_seconds: float = ours(
        15.0, "How long a body may stand still before it is given up.", least=0.1, most=3600
    )
    idle_connections: int = ours(
        768,
        "How many connections are kept open between requests, in all; as many as sites are visited in "
        "CRAWL_KEEP_ALIVE_SECONDS are of use.",
        least=0,
        most=100_000,
    )
    idle_per_host: int = ours(2, "How many of them to one host.", least=0, most=1000)
    keep_alive_seconds: float = ours(15.0, "How long such a connection is kept.", least=0, most=3600)
    dns_seconds: float = ours(300.0, "How long the addresses of a name are believed.", least=0, most=86400)
    dns_failure_seconds: float = ours(
        60.0, "How long a name that has no address is not asked for again.", least=0, most=86400
    )
    page_queue_soft: int = ours(2000, "Pages in the queue above which shards lease less.", least=1)
    page_queue_hard: int = ours(
        4000, "Pages in the queue at which shards lease nothing until it is below the soft limit.", least=1
    )
    page_queue_soft_bytes: int = ours(
        64_000_000, "Bytes in the page queue above which shards lease less.", least=1
    )
    page_queue_hard_bytes: int = ours(
        128_000_000,
        "Bytes in the page queue at which shards lease nothing until it is below the soft limit.",
        least=1,
    )
    figures_seconds: float = ours(
        10.0,
        "How often a process writes down its metrics and says in its log how it comes along, and how often "
        "the leader reads the figures of the run for them.",
        least=0.1,
        most=3600,
    )
    metrics_port: int = ours(
        0,
        "The first port for Prometheus: + the number of a shard, + 100 + that of a parser, + 200 for the "
        "supervisor. 0 means no metrics.",
        least=0,
        most=65_000,
    )
    metrics_host: str = ours("127.0.0.1", "The address to serve metrics at; 0.0.0.0 for all of the machine.")
    metrics_shared: bool = ours(
        False, "One endpoint for all processes of a run on a host, at CRAWL_METRICS_PORT itself."
    )
    log: str = ours(
        "auto",
        "The form of the log: text, a JSON object a line, or text at a terminal and JSON elsewhere (auto).",
        choices=("auto", "text", "json"),
    )
    supervisor: int = ours(
        0,
        "The process that started this one to watch over it: when it is gone, this one stops. `scrapy run` "
        "says it to its children; 0 means none.",
        least=0,
    )
    parse: str = ours(
        "auto",
        "Who reads the pages: the shard itself (inline), parsers (processes), or the shard itself when it is "
        "started without -a shard (auto).",
        choices=("auto", "inline", "processes"),
    )
    parse_seconds: float = ours(
        10.0, "How long a parser may take for one page before it is stopped.", least=0.1, most=3600
    )
    parser_memory: int = ours(
        2_000_000_000,
        "Bytes of memory a parser may take; a page that needs more becomes a dead letter.",
        least=500_000_000,
    )
    page_attempts: int = ours(
        3, "How often parsers try a page before it becomes a dead letter.", least=1, most=100
    )
    segment_pages: int = ours(10_000, "A segment is closed when it holds this many pages.", least=1)
    segment_bytes: int = ours(
        64_000_000, "A segment is closed when its files hold this many bytes.", least=1024
    )
    segment_seconds: float = ours(30.0, "A segment is closed when it is this old.", least=0.1, most=3600)
    full_text: bool = ours(False, "Whether all text of a page is stored, too, navigation included.")
    headings: bool = ours(False, "Whether the headings of a page are stored, with their levels.")
    store_links: bool = ours(False, "Whether the links of a page are stored, and not only how many.")
    text: str = ours(
        "main",
        "The text of a page: what it is about, without menus, teasers and footers; or all that is visible.",
        choices=("main", "all"),
        renamed={"fast": "main", "article": "main"},
    )
    link_tags: tuple[str, ...] = ours(
        ("a", "area", "frame"),
        'Elements whose links are followed; "link" means rel=next.',
        choices=("a", "area", "iframe", "frame", "link"),
    )
    max_links: int = ours(5000, "How many different links of a page are followed.", least=0, most=1_000_000)
    obey_nofollow: bool = ours(
        True, "Whether a page that says nofollow, in a robots meta or in X-Robots-Tag, gives no links."
    )
    obey_rel_nofollow: bool = ours(True, "Whether a link with rel=nofollow is no link.")
    fields: Mapping[str, Any] = ours(
        {}, 'Columns of your own: {"price": "css:.price::text", "author": "xpath://meta[1]/@content"}.'
    )
    parse_batch: int = ours(32, "How many pages a parser takes at once.", least=1, most=1000)

    depth_limit: int = theirs(
        0, "How many links deep the crawl goes from its seeds; 0 means no limit.", least=0
    )
    download_delay: float = theirs(
        1.0, "Seconds between the end of one request to a domain and the next.", least=0, most=86400
    )
    download_slots: Mapping[str, Mapping[str, Any]] = theirs(
        {},
        'Per domain: {"example.org": {"delay": 5}}, {"my-own-site.org": {"delay": 0, "concurrency": 8}}.',
    )
    download_verify_certificates: bool = theirs(
        True, "Whether a site must prove its name by a certificate that is trusted."
    )
    download_fail_on_dataloss: bool = theirs(
        True, "Whether a body that ends too early is a failure; the last attempt takes what there is."
    )
    dnscache_enabled: bool = theirs(True, "Whether addresses of names are kept for a while.")
    dnscache_size: int = theirs(10_000, "How many names.", least=1)
    dns_timeout: float = theirs(10.0, "Seconds a name may take to be resolved.", least=0.1, most=600)
    download_timeout: float = theirs(30.0, "Seconds a download may take.", least=0.1, most=3600)
    concurrent_requests: int = theirs(
        128, "How many domains a shard fetches from at the same time.", least=1, most=10_000
    )
    robotstxt_obey: bool = theirs(True, "Whether robots.txt is fetched and obeyed.")
    user_agent: str = theirs(
        "crawlproj/0.1", "How the crawler introduces itself; say there how its owner can be reached."
    )
    robotstxt_user_agent: str | None = theirs(
        None, "The name looked for in robots.txt; none means the first word of USER_AGENT."
    )
    page_store: tuple[str, ...] = theirs(
        ("parquet",),
        'How pages are stored, in one format or in several: "parquet,warc".',
        choices=("parquet", "jsonl", "warc"),
    )
    redis_url: str | None = theirs(
        None, "The Redis to use; none means an embedded one under the data directory.", secret=True
    )
    redis_params: Mapping[str, Any] = theirs({}, "More options for the Redis client.", secret=True)
    redis_password_file: str | None = theirs(
        None, "A file with the password of Redis, which then need not be in REDIS_URL or REDIS_PARAMS."
    )
    scheduler_persist: bool = theirs(True, "Whether the frontier is kept when the crawl has ended.")
    scheduler_flush_on_start: bool = theirs(False, "Whether the run is emptied before it starts.")
    scheduler_idle_before_close: float = theirs(
        0.0, "Seconds a shard waits for new work when there is none left.", least=0, most=86400
    )

    @property
    def introduction(self) -> str:
        """Return the user agent, with how its owner can be reached."""
        if self.contact is None or self.contact in self.user_agent:
            return self.user_agent
        return f"{self.user_agent} (+{self.contact})"

    @property
    def robots_agent(self) -> str:
        """Return the product token that robots.txt is asked about."""
        return self.robotstxt_user_agent or re.split(r"[/\s]", self.user_agent, maxsplit=1)[0]


def load_config(values: Mapping[str, object]) -> Config:
    """Return the options in *values*, a mapping of setting names, the rest at their defaults.

    Texts are read as the command line gives them (``-s CRAWL_CHAIN=8``), and "false" means false.
    Other names than ours pass unseen, except an unknown ``CRAWL_*``: that is a `BadSetting`.
    """
    known = {_name(option): option for option in fields(Config)}
    for name in values:
        if name.startswith(PREFIX) and name not in known:
            close = get_close_matches(name, known, n=1)
            raise BadSetting(
                f"Unknown setting {name}. Did you mean {close[0]}?"
                if close
                else f"Unknown setting {name}. docs/settings.md lists those there are."
            )
    given = {name: option for name, option in known.items() if values.get(name) is not None}
    config = Config(**{option.name: _read(option, values[name]) for name, option in given.items()})
    _check_together(config)
    if config.redis_password_file is not None:
        password = _password_in(config.redis_password_file)
        config = replace(config, redis_params={"password": password, **config.redis_params})
    return config


def _password_in(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError as exc:
        raise BadSetting(
            f"REDIS_PASSWORD_FILE={path!r} cannot be read: {exc.strerror}. Name the file that holds it."
        ) from exc


def _name(option: Field[Any]) -> str:
    return f"{option.metadata['prefix']}{option.name.upper()}"


def _read(option: Field[Any], value: object) -> Any:
    name, kind, rules = _name(option), str(option.type), option.metadata
    read, noun = _READERS[kind]
    shown = "" if rules["secret"] else f"={value!r}"
    try:
        # Nothing, where nothing is a choice: -s CRAWL_EXCLUDE= on the command line.
        result = () if rules["optional"] and value in ("", (), []) else read(value)
    except (ValueError, TypeError, KeyError):
        raise BadSetting(f"{name}{shown} is not a valid {noun}. {_remedy(option)}") from None
    if new_name := rules["renamed"].get(result) if isinstance(result, str) else None:
        logger.warning("%s%s is an old name for %r, which is used.", name, shown, new_name)
        result = new_name
    chosen = result if isinstance(result, tuple) else (result,)
    if rules["choices"] and not set(chosen) <= set(rules["choices"]):
        raise BadSetting(f"{name}{shown} is not one of its choices. {_remedy(option)}")
    least, most = rules["least"], rules["most"]
    if (least is not None and result < least) or (most is not None and result > most):
        raise BadSetting(f"{name}{shown} is out of range. {_remedy(option)}")
    return result


def _remedy(option: Field[Any]) -> str:
    limits, (_, noun) = _limits(option), _READERS[str(option.type)]
    article = "an" if noun[0] in "aeiou" else "a"
    default = _default(option)
    example = f", such as {default}" if default else ""
    return f"Give {article} {noun}{' ' + limits if limits else ''}{example}."


def _limits(option: Field[Any]) -> str:
    rules = option.metadata
    if rules["choices"]:
        return "out of " + ", ".join(rules["choices"])
    least, most = rules["least"], rules["most"]
    if least is None:
        return ""
    return f"from {least} to {most}" if most is not None else f"of at least {least}"


def _default(option: Field[Any]) -> str:
    """Return the default as a person would write it in settings.py; empty for none."""
    default = option.default
    if isinstance(default, tuple):
        return ",".join(default)
    if isinstance(default, float):
        return f"{default:g}"
    return str(default) if isinstance(default, (int, str, Path)) else ""


def _check_together(config: Config) -> None:
    if config.run and not RUN_NAME.fullmatch(config.run):
        raise BadSetting(
            f"CRAWL_RUN={config.run!r} cannot name a run. Use up to 64 letters, digits, dots, dashes "
            "and underscores, a letter or a digit first."
        )
    if config.lease_seconds <= config.download_timeout:
        raise BadSetting(
            f"CRAWL_LEASE_SECONDS={config.lease_seconds:g} does not exceed "
            f"DOWNLOAD_TIMEOUT={config.download_timeout:g}: a URL would be lent again while it is fetched. "
            "Raise the first or lower the second."
        )
    for unit in ("", "_bytes"):
        soft, hard = getattr(config, f"page_queue_soft{unit}"), getattr(config, f"page_queue_hard{unit}")
        if soft > hard:
            raise BadSetting(
                f"CRAWL_PAGE_QUEUE_SOFT{unit.upper()}={soft} is above "
                f"CRAWL_PAGE_QUEUE_HARD{unit.upper()}={hard}. Lower the first or raise the second."
            )
    if config.redis_url and not config.redis_url.startswith(("redis://", "rediss://", "unix://")):
        # The URL may hold a password, so it is not repeated.
        raise BadSetting(
            "REDIS_URL does not start with redis://, rediss:// or unix://, as in redis://localhost:6379/0."
        )
    for domain, slot in config.download_slots.items():
        _check_slot(domain, slot)
    for name in ("include", "exclude"):
        for pattern in getattr(config, name):
            _check_pattern(name, pattern)
    for network in config.allow_addresses:
        _check_network(network)
    if config.contact is not None and not _CONTACT.fullmatch(config.contact):
        raise BadSetting(
            f"CRAWL_CONTACT={config.contact!r} is neither a mail address nor a URL. Give one at which people "
            "whose sites are visited can reach you: you@example.org or https://example.org/bot."
        )
    if config.scope == "list" and not config.scope_domains:
        raise BadSetting('CRAWL_SCOPE="list" follows nothing without CRAWL_SCOPE_DOMAINS. Name some domains.')


def _check_pattern(name: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as exc:
        raise BadSetting(
            f"CRAWL_{name.upper()} has {pattern!r}, which is no regular expression: {exc}."
        ) from exc


def _check_network(network: str) -> None:
    try:
        ip_network(network)
    except ValueError as exc:
        raise BadSetting(
            f"CRAWL_ALLOW_ADDRESSES has {network!r}: {exc}. Give addresses or networks, "
            "such as 127.0.0.0/8 or 10.1.2.3."
        ) from exc


def _check_slot(domain: str, slot: Mapping[str, Any]) -> None:
    delay, concurrency = slot.get("delay", 0), slot.get("concurrency", 1)
    if isinstance(delay, bool) or not isinstance(delay, (int, float)) or not 0 <= delay < math.inf:
        raise BadSetting(f"DOWNLOAD_SLOTS[{domain!r}] has delay {delay!r}. Give seconds, such as 5 or 0.5.")
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise BadSetting(
            f"DOWNLOAD_SLOTS[{domain!r}] has concurrency {concurrency!r}. Give an int of at least 1."
        )


def _read_int(value: object) -> int:
    if isinstance(value, (bool, float)):
        raise TypeError
    return int(value)  # type: ignore[call-overload,no-any-return]  # any other type raises TypeError


def _read_float(value: object) -> float:
    if isinstance(value, bool):
        raise TypeError
    number = float(value)  # type: ignore[arg-type]  # any other type raises TypeError
    if not math.isfinite(number):
        raise ValueError
    return number


def _read_bool(value: object) -> bool:
    return {
        "true": True,
        "1": True,
        "yes": True,
        "on": True,
        "false": False,
        "0": False,
        "no": False,
        "off": False,
    }[str(value).lower()]


def _read_str(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _read_names(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = json.loads(value) if value.lstrip().startswith("[") else value.split(",")
    if not isinstance(value, (list, tuple)):
        raise TypeError
    # A name given twice is meant once.
    names = dict.fromkeys(_read_str(name).strip() for name in value)
    if not names or "" in names:
        raise ValueError
    return tuple(names)


def _read_path(value: object) -> Path:
    if not value:
        raise ValueError
    return Path(value)  # type: ignore[arg-type]  # any other type raises TypeError


def _read_mapping(value: object) -> Mapping[str, Any]:
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, Mapping):
        raise TypeError
    return dict(value)


def _read_slots(value: object) -> Mapping[str, Mapping[str, Any]]:
    return {domain: _read_mapping(slot) for domain, slot in _read_mapping(value).items()}


#: How the value of each declared type is read, and what a person would call it.
_READERS: dict[str, tuple[Callable[[object], Any], str]] = {
    "int": (_read_int, "int"),
    "float": (_read_float, "float"),
    "bool": (_read_bool, "bool (true or false)"),
    "str": (_read_str, "text"),
    "str | None": (lambda value: _read_str(value) or None, "text"),
    "Path": (_read_path, "path"),
    "tuple[str, ...]": (_read_names, "list of names (or names with commas)"),
    "Mapping[str, Any]": (_read_mapping, "dict (or JSON object)"),
    "Mapping[str, Mapping[str, Any]]": (_read_slots, "dict of dicts (or JSON object of objects)"),
}


def settings_page() -> str:
    """Return docs/settings.md."""
    return "\n".join(_settings_lines()) + "\n"


def _settings_lines() -> Iterator[str]:
    yield "# Settings"
    yield ""
    yield "Printed by `python -m crawlproj.config`; change `crawlproj/config.py`, not this page."
    yield ""
    yield "Set them in `crawlproj/settings.py`, or for one process with `-s NAME=VALUE`."
    for title, prefix in (("Ours", PREFIX), ("Under the names of Scrapy and scrapy-redis", "")):
        yield from ("", f"## {title}", "", "| setting | type | default | limits | |", "|---|---|---|---|---|")
        for option in fields(Config):
            if option.metadata["prefix"] == prefix:
                kind = _READERS[str(option.type)][1].split(" (")[0]
                default = f"`{_default(option)}`" if _default(option) else ""
                sentence = option.metadata["sentence"]
                yield f"| `{_name(option)}` | {kind} | {default} | {_limits(option)} | {sentence} |"


if __name__ == "__main__":
    print(settings_page(), end="")
