"""The options of a crawl: `load_config` reads and checks them, `options.py` lists them.

Nothing here reads the environment, Scrapy's settings or a file; the caller passes a plain mapping.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from ipaddress import ip_network
from typing import Any

from crawlproj.config.declare import PREFIX, name_of, read
from crawlproj.config.options import Config
from crawlproj.errors import BadSetting

__all__ = ["RUN_NAME", "Config", "load_config"]

#: A run's name becomes a directory and a part of every key.
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_CONTACT = re.compile(r"[^\s()<>@]+@[^\s()<>@]+\.[^\s()<>@]+|https?://[^\s()<>]+")


def load_config(values: Mapping[str, object]) -> Config:
    """Return the options in *values*, a mapping of setting names; the others have their defaults.

    Text is parsed as on the command line (``-s CRAWL_CHAIN=8``), and "false" means false. Settings of others
    are ignored, but an unknown ``CRAWL_*`` is a `BadSetting`.
    """
    known = {name_of(option): option for option in fields(Config)}
    for name in values:
        if name.startswith(PREFIX) and name not in known:
            close = get_close_matches(name, known, n=1)
            raise BadSetting(
                f"Unknown setting {name}. "
                + (f"Did you mean {close[0]}?" if close else "docs/settings.md lists all settings.")
            )
    given = {name: option for name, option in known.items() if values.get(name) is not None}
    config = Config(**{option.name: read(option, values[name]) for name, option in given.items()})
    _check_together(config)
    return config


def _check_together(config: Config) -> None:
    if config.run and not RUN_NAME.fullmatch(config.run):
        raise BadSetting(
            f"CRAWL_RUN={config.run!r} cannot name a run. Use up to 64 letters, digits, dots, dashes "
            "and underscores, a letter or a digit first."
        )
    if config.lease_seconds <= config.download_timeout:
        raise BadSetting(
            f"CRAWL_LEASE_SECONDS={config.lease_seconds:g} does not exceed "
            f"DOWNLOAD_TIMEOUT={config.download_timeout:g}: a URL would be leased again while it is fetched. "
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
            f"CRAWL_{name.upper()} has {pattern!r}, which is not a regular expression: {exc}."
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
