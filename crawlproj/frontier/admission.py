"""Which URLs may become candidates: scope, patterns, extensions, length, depth, obvious traps. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

from crawlproj.config import Config
from crawlproj.errors import BadSetting, BadUrl
from crawlproj.model.urls import UrlRules, canonicalise, domain_of, host_of

#: How often a query may repeat one parameter.
_MOST_SAME_PARAMETERS = 3
_MOST_HOSTS = 65_536
#: Scopes that no link leaves, as far as a page can tell; `frontier.scope` keeps links to sites.
_ANYWHERE = ("everything", "sites")


class AdmissionRules:
    """The rules of a run. Raises BadSetting for an invalid domain in CRAWL_SCOPE_DOMAINS.

    *is_excluded* is called as well, for example `Exclusions.excludes`. ``urls`` cleans URLs before they are
    judged.
    """

    def __init__(self, config: Config, is_excluded: Callable[[str], bool] | None = None) -> None:
        self.urls = UrlRules(config.drop_parameters)
        self._is_excluded = is_excluded
        self.change(config)

    def change(self, config: Config) -> None:
        """Follow other rules from now on; the sites of the scope `sites` are the frontier's to check."""
        self._excluded = matcher(config.exclude)
        self._included = matcher(config.include)
        self._scope = config.scope
        self._listed = HostSet(_host(name) for name in config.scope_domains)
        self._extensions = frozenset(name.lower().lstrip(".") for name in config.skip_extensions)
        self._max_chars = config.max_url
        self._max_depth = config.depth_limit
        self._trap_segments = config.trap_segments
        self._trap_depth = config.trap_depth
        self._trap_parameters = config.trap_parameters

    def refusal(self, url: str, depth: int, source: str | None) -> str | None:
        """Return why *url*, clean and canonical, may not be fetched; None if it may.

        *source* is the page with the link, or the URL that redirected; None for a seed, which is refused only
        for its length or by an exclusion. Depth 0 with a source is the redirect target of a seed: its scope
        is not checked, unless there is a list.
        """
        if len(url) > self._max_chars:
            return "length"
        if self._excluded is not None and self._excluded(url):
            return "excluded"
        if self._is_excluded is not None and self._is_excluded(url):
            return "excluded"
        if source is None:
            return None
        if self._max_depth and depth > self._max_depth:
            return "depth"
        if self._scope not in _ANYWHERE and not self._is_in_scope(url, depth, source):
            return "scope"
        if self._included is not None and not self._included(url):
            return "not_included"
        path, _, query = url[url.find("/", 8) :].partition("?")
        return self._refusal_of_path(path) or (self._refusal_of_query(query) if query else None)

    def still_accepted(self, depth: int, source: str) -> str | None:
        """Return a prefix: URLs with it that were accepted on another page are accepted here. None: none are.

        Of what `refusal` checks, only depth and scope depend on the page.
        """
        if self._max_depth and depth > self._max_depth:
            return None
        return "" if self._scope in (*_ANYWHERE, "list") else source[: source.find("/", 8) + 1]

    def _is_in_scope(self, url: str, depth: int, source: str) -> bool:
        if self._scope == "list":
            return host_of(url) in self._listed
        if depth == 0:
            return True
        if self._scope == "seeds":
            return False
        # True for nearly all links.
        if url.startswith(source[: source.find("/", 8) + 1]):
            return True
        if self._scope == "host":
            return host_of(url) == host_of(source)
        return domain_of(url) == domain_of(source)

    def _refusal_of_path(self, path: str) -> str | None:
        _, dot, extension = path[path.rfind("/") :].rpartition(".")
        if dot and extension.lower() in self._extensions:
            return "extension"
        segments = path.count("/")
        if segments > self._trap_depth + path.endswith("/"):
            return "trap_depth"
        if segments > self._trap_segments and _repeats(path, self._trap_segments):
            return "trap_repeat"
        return None

    def _refusal_of_query(self, query: str) -> str | None:
        parameters = query.count("&") + 1
        if parameters > self._trap_parameters:
            return "trap_parameters"
        if parameters > _MOST_SAME_PARAMETERS:
            names = [part.partition("=")[0] for part in query.split("&")]
            if _highest_count(names) > _MOST_SAME_PARAMETERS:
                return "trap_parameters"
        return None


class HostSet:
    """Domains and hosts, with all hosts below them. Lookups are cached, up to a limit."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._known: dict[str, bool] = {}

    def __contains__(self, host: str) -> bool:
        known = self._known.get(host)
        if known is None:
            if len(self._known) >= _MOST_HOSTS:
                self._known.clear()
            known = self._known[host] = self._holds(host)
        return known

    def _holds(self, host: str) -> bool:
        while host and host not in self._names:
            host = host.partition(".")[2]
        return bool(host)


def matcher(patterns: Iterable[str]) -> Callable[[str], bool] | None:
    """Return a function that searches a text for any of *patterns*; None if there are none."""
    compiled = [re.compile(pattern) for pattern in patterns]
    # Patterns without groups and flags can be joined, so that re searches once for common prefixes.
    plain = [pattern.pattern for pattern in compiled if not pattern.groups and pattern.flags == re.UNICODE]
    searches = [pattern.search for pattern in compiled if pattern.groups or pattern.flags != re.UNICODE]
    if plain:
        searches.append(re.compile("|".join(f"(?:{pattern})" for pattern in plain)).search)
    if not searches:
        return None
    return lambda text: any(search(text) for search in searches)


def _host(name: str) -> str:
    try:
        url = canonicalise(f"http://{name}/")
    except BadUrl:
        url = ""
    if not url or "*" in url or url != f"http://{host_of(url)}/":
        raise BadSetting(
            f"CRAWL_SCOPE_DOMAINS has {name!r}, which is not a domain. Write example.org: all hosts "
            "below it are included, and ports do not matter."
        )
    return host_of(url)


def _repeats(path: str, most: int) -> bool:
    """Whether *path* has a segment more than *most* times, or repeats a group of segments.

    A group of two or more counts when it comes *most* times in a row, at least twice: /a/b/a/b/a/b.
    """
    segments = path[1:].removesuffix("/").split("/")
    again = len(segments) - len(set(segments))
    if not again:
        return False
    if again >= most and _highest_count(segments) > most:
        return True
    rounds = max(most, 2)
    return again >= 2 * (rounds - 1) and any(
        _repeats_in_a_row(segments, size, rounds) for size in range(2, len(segments) // rounds + 1)
    )


def _highest_count(words: list[str]) -> int:
    """Return how often the most frequent of *words* occurs."""
    if len(set(words)) == len(words):
        return 1
    return max(Counter(words).values())


def _repeats_in_a_row(segments: list[str], size: int, rounds: int) -> bool:
    """Whether a group of *size* segments comes *rounds* times in a row."""
    wanted, same = size * (rounds - 1), 0
    for one, next_one in zip(segments, segments[size:], strict=False):
        same = same + 1 if one == next_one else 0
        if same == wanted:
            return True
    return False
