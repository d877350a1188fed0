"""URLs: their canonical form, the domain they belong to, their fingerprint."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

import ada_url
from publicsuffixlist import PublicSuffixList

from crawlproj.errors import BadUrl

_SUFFIXES = PublicSuffixList()
_SCHEMES = frozenset({"http", "https"})

#: Query parameters that say who came and from where, not what is shown. A star stands for any more letters.
#: `UrlRules` looks at them without regard to case. Names that many sites use for content (``ref``,
#: ``source``, ``id``, ``s``, ``page``) are not here on purpose; docs/urls.md says more.
DROPPED_PARAMETERS: tuple[str, ...] = (
    # Campaigns and clicks: advertisers, mailings, analytics.
    "utm_*",
    "gclid",
    "gclsrc",
    "gbraid",
    "wbraid",
    "dclid",
    "fbclid",
    "msclkid",
    "yclid",
    "ysclid",
    "twclid",
    "ttclid",
    "igshid",
    "li_fat_id",
    "mc_cid",
    "mc_eid",
    "mkt_tok",
    "_hsenc",
    "_hsmi",
    "__hssc",
    "__hstc",
    "__hsfp",
    "hsctatracking",
    "vero_id",
    "vero_conv",
    "oly_anon_id",
    "oly_enc_id",
    "_openstat",
    "_ga",
    "_gl",
    "mtm_*",
    "matomo_*",
    "piwik_*",
    "pk_campaign",
    "pk_kwd",
    "pk_source",
    "pk_medium",
    "pk_content",
    "wt_mc",
    "at_campaign",
    "at_medium",
    "s_cid",
    "ncid",
    # Sessions.
    "phpsessid",
    "jsessionid",
    "aspsessionid*",
    "asp.net_sessionid",
    "cfid",
    "cftoken",
    "sessionid",
    "session_id",
    "zenid",
    "oscsid",
    # Only when the value looks like an id: see `ID_PARAMETERS`.
    "sid",
    "session",
    "sess",
)
#: Parameters of the list above that have other meanings as well: they go only with a value that can be
#: nothing but an id, 16 or more letters and digits with a digit among them.
ID_PARAMETERS = frozenset({"sid", "session", "sess"})

#: Endings of files that have no text or links for us. Types that may be extracted one day (pdf, doc) are
#: among them: a crawl that wants them says so by a shorter list.
SKIPPED_EXTENSIONS: tuple[str, ...] = (
    *("7z", "apk", "bin", "bz2", "cab", "deb", "dmg", "exe", "gz", "iso", "jar", "msi", "pkg", "rar", "rpm"),
    *("tar", "tgz", "war", "whl", "xz", "zip", "zst"),
    *("ai", "avif", "bmp", "cr2", "eps", "gif", "heic", "ico", "jpeg", "jpg", "jxl", "png", "psd", "raw"),
    *("svg", "svgz", "tif", "tiff", "webp"),
    *("aac", "aif", "aiff", "flac", "m4a", "mid", "midi", "mp3", "oga", "ogg", "opus", "ra", "wav", "wma"),
    *("3gp", "asf", "avi", "flv", "m3u8", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg", "ogv", "qt", "swf"),
    *("ts", "vob", "webm", "wmv"),
    *("eot", "otf", "ttf", "woff", "woff2"),
    *("css", "js", "map", "mjs", "wasm"),
    *("azw3", "doc", "docx", "epub", "mobi", "odg", "odp", "ods", "odt", "pdf", "pps", "ppt", "pptx", "ps"),
    *("rtf", "xls", "xlsx"),
    *("class", "dat", "db", "dll", "mdb", "o", "parquet", "pyc", "so", "sqlite", "torrent"),
)

#: Query parameters that say who came, or from where, and not what is shown. A star: any more letters.
DROPPED_PARAMETERS: tuple[str, ...] = ("utm_*", "gclid", "fbclid", "phpsessid", "jsessionid")
#: Files that hold no text a crawl for text could use.
# fmt: off
SKIPPED_EXTENSIONS: tuple[str, ...] = (
    "7z", "aac", "apk", "avi", "avif", "bin", "bmp", "bz2", "css", "deb", "dmg", "doc", "docx", "eot",
    "epub", "exe", "flac", "flv", "gif", "gz", "ico", "iso", "jar", "jpeg", "jpg", "js", "m4a", "m4v",
    "mkv", "mov", "mp3", "mp4", "mpeg", "mpg", "msi", "odp", "ods", "odt", "ogg", "ogv", "opus", "otf",
    "pdf", "png", "ppt", "pptx", "rar", "rpm", "svg", "swf", "tar", "tgz", "tif", "tiff", "ttf", "wav",
    "webm", "webp", "wma", "wmv", "woff", "woff2", "xls", "xlsx", "xz", "zip", "zst",
)
# fmt: on


def canonicalise(url: str, base: str | None = None) -> str:
    """Return *url* as the WHATWG URL standard writes it, without fragment, empty query or credentials.

    ``canonicalise(canonicalise(u)) == canonicalise(u)``. Raises BadUrl for what cannot be crawled.
    """
    try:
        href = ada_url.normalize_url(url) if base is None else ada_url.join_url(base, url)
    except ValueError as exc:
        raise BadUrl(f"{url!r} is not a URL; expected something like https://example.org/page") from exc
    # The standard leaves exactly this much to cut: it has escaped every other '#', '?' and '@' here.
    href = href.partition("#")[0]
    if href.find("?") == len(href) - 1:
        href = href[:-1]
    scheme, _, rest = href.partition("://")
    if scheme not in _SCHEMES:
        raise BadUrl(f"{url!r} is not http or https; only these are crawled")
    authority, _, path = rest.partition("/")
    if "@" in authority or authority.endswith(".") or ".:" in authority:
        authority = authority.rpartition("@")[2]
        host, colon, port = authority.partition(":")
        host = host.rstrip(".")
        if not host:
            raise BadUrl(f"{url!r} has no host; expected something like https://example.org/page")
        return canonicalise(f"{scheme}://{host}{colon}{port}/{path}")
    return href


def host_of(url: str) -> str:
    """Return the host of a canonical URL, without port."""
    start = url.index("://") + 3
    end = url.find("/", start)
    authority = url[start:] if end < 0 else url[start:end]
    if authority.startswith("["):
        return authority[: authority.index("]") + 1]
    return authority.partition(":")[0]


def origin_of(url: str) -> str:
    """Return scheme, host and port of a canonical URL: what one robots.txt speaks for."""
    end = url.find("/", url.index("://") + 3)
    return url if end < 0 else url[:end]


@lru_cache(maxsize=65_536)
def domain_of_host(host: str) -> str:
    """Return the registered domain of *host*, private suffixes such as github.io included.

    IP addresses, single labels and public suffixes are their own domain.
    """
    if host.startswith("[") or host.replace(".", "").isdigit():
        return host
    registered: str | None = _SUFFIXES.privatesuffix(host)
    return registered or host


def domain_of(url: str) -> str:
    """Return the domain, the unit of politeness, of a canonical URL. Ports do not make a new one."""
    return domain_of_host(host_of(url))


def fingerprint(url: str) -> int:
    """Return the 63-bit number that stands for a canonical URL in `seen`.

    Not a fast hash on purpose: a hostile page must not be able to make URLs that collide with others'.
    63 bits, so that it stays a positive integer for Redis.
    """
    return int.from_bytes(blake2b(url.encode(), digest_size=8).digest(), "big") >> 1


def shorten(url: str, domain: str) -> str:
    """Return the compact form in which *url* waits in the queue of *domain*."""
    for code, prefix in _prefixes(domain):
        if url.startswith(prefix):
            return code + url[len(prefix) - 1 :]
    return url


def expand(short: str, domain: str) -> str:
    """Return the URL that `shorten` made short."""
    if short[1:2] != "/":
        return short
    for code, prefix in _prefixes(domain):
        if short[0] == code:
            return prefix + short[2:]
    raise ValueError(f"unknown URL form {short!r}")


def _prefixes(domain: str) -> tuple[tuple[str, str], ...]:
    return (
        ("s", f"https://{domain}/"),
        ("w", f"https://www.{domain}/"),
        ("h", f"http://{domain}/"),
    )
