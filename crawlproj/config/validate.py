"""Checks of options that could be read: values with a form of their own, and values that belong together."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from ipaddress import ip_network
from typing import Any

from crawlproj.config.declare import name_of
from crawlproj.config.options import Config
from crawlproj.errors import BadUrl, Problem
from crawlproj.model.urls import canonicalise, host_of, is_public_suffix

#: A run's name becomes a directory and a part of every key.
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REDIS_SCHEMES = (
    *("redis://", "rediss://", "unix://"),
    *("redis+cluster://", "rediss+cluster://", "redis+sentinel://", "rediss+sentinel://"),
)
_CONTACT = re.compile(r"[^\s()<>@]+@[^\s()<>@]+\.[^\s()<>@]+|https?://[^\s()<>]+")
#: Kinds of object stores: S3, Google, Azure, a directory.
STORE_SCHEMES = ("s3", "gs", "az", "file")
#: What a slot of Scrapy has. The last two vary the delay; here it is guaranteed, so they change nothing.
_SLOT_FIELDS = ("delay", "concurrency", "jitter", "randomize_delay")

#: The names of the options, as a person sets them.
_SETTINGS = {option.name: name_of(option) for option in fields(Config)}
#: The options that were looked at, and what is wrong with them.
Found = tuple[tuple[str, ...], Problem]


def problems_of(config: Config) -> Iterator[Found]:
    yield from _names(config)
    yield from _pairs(config)
    for domain, slot in config.download_slots.items():
        for problem in _slot_problems(domain, slot):
            yield ("download_slots",), problem
    for name in ("include", "exclude"):
        for pattern in getattr(config, name):
            yield from _pattern(name, pattern)
    for network in config.allow_addresses:
        yield from _network(network)


def _names(config: Config) -> Iterator[Found]:
    if config.run and not RUN_NAME.fullmatch(config.run):
        yield _found(
            "run",
            config.run,
            f"CRAWL_RUN={config.run!r} cannot name a run.",
            "Use up to 64 letters, digits, dots, dashes and underscores, a letter or a digit first.",
        )
    if config.redis_url and not config.redis_url.startswith(_REDIS_SCHEMES):
        # The URL may hold a password, so it is not repeated.
        yield _found(
            "redis_url",
            "",
            "REDIS_URL does not start with redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://,",
            "as in redis://localhost:6379/0.",
        )
    if config.store and (wrong := _store(config.store)):
        # It may hold a key, so it is not repeated.
        yield _found(
            "store",
            "",
            f"CRAWL_STORE {wrong}.",
            "Write s3://BUCKET/PREFIX; credentials and endpoint come from the environment: "
            "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL.",
        )
    if config.contact is not None and not _CONTACT.fullmatch(config.contact):
        yield _found(
            "contact",
            config.contact,
            f"CRAWL_CONTACT={config.contact!r} is neither a mail address nor a URL.",
            "Give one at which people whose sites are visited can reach you: you@example.org or "
            "https://example.org/bot.",
        )


def _found(option: str, value: str, wrong: str, remedy: str = "", beside: str = "") -> Found:
    """Return what is wrong with an option, or with it and another *beside*."""
    return (option, beside) if beside else (option,), Problem(_SETTINGS[option], value, wrong, remedy)


def _store(address: str) -> str:
    """Return what is wrong with the address of an object store; '' if nothing."""
    scheme, separator, rest = address.partition("://")
    if not separator or scheme not in STORE_SCHEMES:
        return f"does not begin with {', '.join(f'{one}://' for one in STORE_SCHEMES)}"
    if "@" in rest or "?" in rest:
        return "has more than a bucket and a prefix"
    return "" if rest.strip("/") else "names no bucket"


def _pairs(config: Config) -> Iterator[Found]:
    if config.lease_seconds <= config.download_timeout:
        yield _found(
            "lease_seconds",
            f"{config.lease_seconds:g}",
            f"CRAWL_LEASE_SECONDS={config.lease_seconds:g} does not exceed "
            f"DOWNLOAD_TIMEOUT={config.download_timeout:g}: a URL would be leased again while it is fetched.",
            "Raise the first or lower the second.",
            beside="download_timeout",
        )
    for unit in ("", "_bytes"):
        names = f"page_queue_soft{unit}", f"page_queue_hard{unit}"
        soft, hard = (getattr(config, name) for name in names)
        if soft > hard:
            yield _found(
                names[0],
                str(soft),
                f"{_SETTINGS[names[0]]}={soft} is above {_SETTINGS[names[1]]}={hard}.",
                "Lower the first or raise the second.",
                beside=names[1],
            )
    if config.scope == "list" and not config.scope_domains:
        wrong = 'CRAWL_SCOPE="list" follows nothing without CRAWL_SCOPE_DOMAINS.'
        yield _found("scope_domains", "", wrong, "Name some domains.", beside="scope")


def _pattern(name: str, pattern: str) -> Iterator[Found]:
    try:
        re.compile(pattern)
    except re.error as exc:
        wrong = f"{_SETTINGS[name]} has {pattern!r}, which is not a regular expression: {exc}."
        yield _found(name, pattern, wrong)


def _network(network: str) -> Iterator[Found]:
    try:
        ip_network(network)
    except ValueError as exc:
        wrong = f"CRAWL_ALLOW_ADDRESSES has {network!r}: {exc}."
        remedy = "Give addresses or networks, such as 127.0.0.0/8 or 10.1.2.3."
        yield _found("allow_addresses", network, wrong, remedy)


def _slot_problems(domain: object, slot: Mapping[str, Any]) -> Iterator[Problem]:
    def problem(value: object, wrong: str, remedy: str) -> Problem:
        return Problem(f"DOWNLOAD_SLOTS[{domain!r}]", str(value), f"DOWNLOAD_SLOTS{wrong}", remedy)

    if remedy := _remedy_of_domain(domain):
        yield problem(domain, f" has {domain!r}, which is not a domain.", remedy)
    for name, value in slot.items():
        if name not in _SLOT_FIELDS:
            close = get_close_matches(str(name), _SLOT_FIELDS, n=1)
            remedy = f"Did you mean {close[0]!r}?" if close else "Known: 'delay' and 'concurrency'."
            yield problem(name, f"[{domain!r}] has the unknown field {name!r}.", remedy)
        elif remedy := _remedy_of_field(name, value):
            yield problem(value, f"[{domain!r}] has {name} {value!r}.", remedy)


def _remedy_of_domain(name: object) -> str:
    """Return what to write instead of *name*, '' if it is a domain or a host."""
    example = "Write example.org: its subdomains are included, and ports do not matter."
    if not isinstance(name, str) or "*" in name:
        return example
    try:
        url = canonicalise(name if "://" in name else f"http://{name}/")
    except BadUrl:
        return example
    if url != f"http://{host_of(url)}/":
        return f"Write {host_of(url)!r}: its subdomains are included, and ports do not matter."
    return f"No site is at a public suffix. {example}" if is_public_suffix(host_of(url)) else ""


def _remedy_of_field(name: str, value: object) -> str:
    """Return what to give instead of *value*, '' if it is fine."""
    if name == "concurrency":
        is_fine = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        return "" if is_fine else "Give an int of at least 1."
    if name == "randomize_delay":
        return "" if isinstance(value, bool) else "Give true or false."
    is_fine = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
    return "" if is_fine else "Give seconds, such as 5 or 0.5."
