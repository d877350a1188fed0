"""What callers submit: a fixed list of fields, none of which can loosen what the server was started with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import msgspec
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from crawlproj import checks, profiles
from crawlproj.api.problems import Refused
from crawlproj.config import RUN_NAME, Config, read_config
from crawlproj.errors import BadArgument, Problem
from crawlproj.frontier.seeds import SeedLines, judge_seeds

#: The most seeds of a request, and the longest one.
MOST_SEEDS = 10_000
_MOST_SEED = 8_000
#: Fields that stand for a setting.
_SETTINGS = {
    "scope": "CRAWL_SCOPE",
    "max_depth": "DEPTH_LIMIT",
    "max_domain_pages": "CRAWL_DOMAIN_PAGES",
    "delay": "DOWNLOAD_DELAY",
}
_MOST = 10**12
_NAME = f"^{RUN_NAME.pattern}$"

Seeds = Annotated[
    str | list[Annotated[str, Field(max_length=_MOST_SEED)]],
    Field(
        validation_alias=AliasChoices("seeds", "domains", "urls"),
        description="Domains or URLs, separated by spaces, commas or lines, or as a list. The field may also "
        "be called domains or urls.",
        examples=["example.org, example.com"],
    ),
]
Amount = Annotated[int, Field(ge=0, le=_MOST)]
Shards = Annotated[int, Field(ge=1, le=64)]
Parsers = (
    Annotated[str, Field(pattern=r"^[1-9][0-9]?(\.\.([1-9][0-9]?)?)?$", examples=["1..4"])]
    | Annotated[int, Field(ge=0, le=99)]
)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, body: object) -> object:
        """Refuse lone surrogates (``\\ud800``): neither Redis nor a file nor an answer could hold them."""
        try:
            msgspec.json.encode(body)
        except UnicodeEncodeError as exc:
            wrong = "It has half a character, a lone surrogate"
            raise PydanticCustomError("half_a_character", wrong) from exc
        return body


class SeedsRequest(_Body):
    seeds: Seeds


class ShardsRequest(_Body):
    shards: Shards


class LimitsRequest(_Body):
    """New limits for a job that goes further; 0: none."""

    max_pages: Amount | None = None
    max_seconds: Amount | None = None
    max_bytes: Amount | None = None


class ReleaseRequest(_Body):
    """What to release: parked domains and trapped URLs of these domains, or for this reason, or all."""

    domains: Annotated[list[Annotated[str, Field(max_length=300)]], Field(max_length=MOST_SEEDS)] = []
    reason: Annotated[str, Field(max_length=50)] = ""
    all: bool = False


class ReplayRequest(_Body):
    """The dead letters to replay; without ids all of them."""

    ids: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=MOST_SEEDS)] | None = None


class ExportRequest(_Body):
    """What to export: the pages, or the items that a spider has scraped."""

    format: Literal["parquet", "jsonl", "csv", "warc"] = "parquet"
    items: bool = False


class JobRequest(_Body):
    """A crawl. What is not given is as the server was started."""

    seeds: Seeds
    name: Annotated[str, Field(pattern=_NAME, description="If none is given, made of a seed.")] | None = None
    scope: Literal["sites", "everything", "domain", "host", "seeds"] | None = None
    max_pages: Amount | None = None
    max_seconds: Amount | None = None
    max_depth: Amount | None = None
    max_domain_pages: Amount | None = None
    profile: Annotated[str, Field(pattern=_NAME)] | None = None
    shards: Shards | None = None
    parsers: Parsers | None = None
    mode: Literal["sharded", "single"] | None = None
    delay: Annotated[float, Field(ge=0, le=86_400, description="Seconds; not below the server's.")] | None = (
        None
    )


class Plan:
    """A job that may be created: its seeds, canonical, and how `scrapy run` is called for it."""

    def __init__(self, request: JobRequest, config: Config, settings: Mapping[str, Any]) -> None:
        """Raises Refused with everything that is wrong, field by field."""
        problems: list[Problem] = []
        profile = _profile(request, problems)
        own: dict[str, str] = dict(profile.settings) if profile else {}
        for field, name in _SETTINGS.items():
            value = getattr(request, field)
            if value is not None:
                own[name] = f"{value:g}" if isinstance(value, float) else str(value)
        if request.delay is not None and request.delay < config.download_delay:
            wrong = f"delay={request.delay:g} is shorter than the server's, {config.download_delay:g} s."
            problems.append(Problem("delay", str(request.delay), wrong, "Give that or more."))
        elif float(own.get("DOWNLOAD_DELAY", math.inf)) < config.download_delay:
            # A profile must not get around it.
            own["DOWNLOAD_DELAY"] = f"{config.download_delay:g}"
        least, _, most = str(request.parsers or "").partition("..")
        if most and int(most) < int(least):
            wrong = f"parsers={request.parsers} ends below its start."
            problems.append(Problem("parsers", str(request.parsers), wrong, f"Use {most}..{least}."))
        job_config, wrong_settings = read_config({**settings, **own})
        problems += (replace(one, field=_field_of(one.field)) for one in wrong_settings)
        lines = list(split_seeds(request.seeds))
        if not 0 < len(lines) <= MOST_SEEDS:
            problems += checks.fetch_problems(job_config)
        if len(lines) > MOST_SEEDS:
            wrong = f"{len(lines):,} seeds are more than {MOST_SEEDS:,}."
            problems.append(Problem("seeds", "", wrong, "Add the rest afterwards."))
        elif not lines:
            problems.append(Problem("seeds", "", "There are no seeds.", "Give domains or URLs."))
        else:
            problems += checks.crawl_problems(job_config, [SeedLines(lines)])
        if problems:
            raise Refused(422, f"Problems: {len(problems)}; nothing was created.", problems)
        self.seeds = lines
        self.options = _options(request, profile)
        self.options["settings"] = own

    @property
    def first_url(self) -> str:
        [first] = judge_seeds(SeedLines(self.seeds[:1]))
        assert not isinstance(first, Problem)
        return first.url


def split_seeds(given: str | list[str]) -> Iterator[str]:
    """Yield the seeds in a text or list, separated by white space and commas; lines with # are comments.

    A comma within the path of a URL is part of it, unless another URL with its scheme follows.
    """
    texts = [given] if isinstance(given, str) else given
    for line in (line.strip() for text in texts for line in text.splitlines()):
        for word in () if line.startswith("#") else line.split():
            seed = ""
            for part in word.split(","):
                has_path = "/" in seed.partition("://")[2] if "://" in seed else "/" in seed
                if seed and has_path and "://" not in part:
                    seed += f",{part}"
                    continue
                if seed:
                    yield seed.rstrip(",")
                seed = part
            if seed:
                yield seed.rstrip(",")


def _profile(request: JobRequest, problems: list[Problem]) -> profiles.Profile | None:
    if request.profile is None:
        return None
    try:
        # By name only: a path would read any file of the server.
        if request.profile.endswith(".toml"):
            raise BadArgument(f"{request.profile!r} is a file; name a profile.")
        return profiles.load(request.profile)
    except BadArgument as exc:
        problems.append(Problem("profile", request.profile, str(exc)))
        return None


def _options(request: JobRequest, profile: profiles.Profile | None) -> dict[str, Any]:
    is_single = request.mode == "single"
    parsers = "0" if is_single else request.parsers
    if parsers is None and profile:
        parsers = profile.parsers
    seconds = request.max_seconds
    return {
        "mode": "single" if str(parsers) == "0" else "sharded",
        "shards": 1 if is_single else request.shards or (profile.shards if profile else 2),
        "parsers": str(parsers) if parsers is not None else "",
        "max_pages": request.max_pages if request.max_pages is not None else profile.pages if profile else 0,
        "max_seconds": seconds if seconds is not None else math.ceil(profile.seconds) if profile else 0,
        "max_bytes": profile.bytes if profile else 0,
    }


def _field_of(setting: str) -> str:
    return next((field for field, name in _SETTINGS.items() if name == setting), setting)
