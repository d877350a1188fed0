"""URLs: their canonical form, the domain they belong to, their fingerprint."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path

import ada_url
from publicsuffixlist import PSLFILE, PublicSuffixList

from crawlproj.errors import BadUrl

_SCHEMES = frozenset({"http", "https"})

#: Query parameters for tracking and sessions, which do not change the page. A star matches any suffix; case
#: does not matter. Names that many sites use for content (``ref``, ``source``, ``id``, ``s``, ``page``) are
#: left out on purpose; docs/urls.md says more.
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
#: Parameters of the list above with other meanings, too: dropped only if the value can only be an id, 16 or
#: more letters and digits with at least one digit.
ID_PARAMETERS = frozenset({"sid", "session", "sess"})

_LOOKS_LIKE_ID = re.compile(r"(?=[^0-9]*[0-9])[A-Za-z0-9-]{16,}").fullmatch
#: The headings of a directory's listing by Apache and others: the same entries in another order.
_SORTED_LISTING = re.compile(r"C=[NMSD][;&]O=[AD]")
#: An escape of an unreserved character (%7e is ~), or one in lower case (%2f is %2F), which the standard
#: leaves as they are. Not after a stray percent sign, which the result would complete: "%%34%31".
_UNTIDY_ESCAPE = re.compile(
    r"(?<!%)(?<!%[0-9A-Fa-f])%(2[DEde]|3[0-9]|[46][1-9A-Fa-f]|5[0-9AFaf]|7[0-9AEae]|[0-9A-Fa-f][a-f]|[a-f][0-9A-F])"
)
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_RAW_BYTE = re.compile("[\x80-\xff]")
_SESSION_IN_PATH = re.compile(r";jsessionid=[^/;]*", re.IGNORECASE)

#: Extensions of files without text or links. Types that may be supported one day (pdf, doc) are included: a
#: crawl that wants them sets a shorter list.
SKIPPED_EXTENSIONS: tuple[str, ...] = (
    *("7z", "apk", "bin", "bz2", "cab", "deb", "dmg", "exe", "gz", "iso", "jar", "msi", "pkg", "rar", "rpm"),
    *("tar", "tgz", "war", "whl", "xz", "zip", "zst"),
    *("avif", "bmp", "cr2", "eps", "gif", "heic", "ico", "jpeg", "jpg", "jxl", "png", "psd", "raw"),
    *("svg", "svgz", "tif", "tiff", "webp"),
    *("aac", "aif", "aiff", "flac", "m4a", "mid", "midi", "mp3", "oga", "ogg", "opus", "ra", "wav", "wma"),
    *("3gp", "asf", "avi", "flv", "m3u8", "m4v", "mkv", "mov", "mp4", "mpeg", "mpg", "ogv", "qt", "swf"),
    *("ts", "vob", "webm", "wmv"),
    *("eot", "otf", "ttf", "woff", "woff2"),
    *("css", "js", "map", "mjs", "wasm"),
    *("azw3", "doc", "docx", "epub", "mobi", "odg", "odp", "ods", "odt", "pdf", "pps", "ppt", "pptx", "ps"),
    *("rtf", "xls", "xlsx"),
    *("class", "dat", "db", "dll", "mdb", "parquet", "pyc", "sqlite", "torrent"),
)


def canonicalise(url: str, base: str | None = None) -> str:
    """Return *url* as the WHATWG URL standard writes it, without fragment, empty query or credentials.

    ``canonicalise(canonicalise(u)) == canonicalise(u)``. Raises BadUrl for what cannot be crawled.
    """
    try:
        href = ada_url.normalize_url(url) if base is None else ada_url.join_url(base, url)
    except ValueError as exc:
        raise BadUrl(f"{url!r} is not a URL; expected something like https://example.org/page") from exc
    # The standard has escaped every other '#', '?' and '@'.
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


def escape_raw_bytes(header: str) -> str:
    """Return the URL in a header, which was decoded as Latin-1, with its raw bytes escaped, as browsers do.

    So it means what the server meant, in UTF-8 and in any other encoding.
    """
    return header if header.isascii() else _RAW_BYTE.sub(lambda byte: f"%{ord(byte[0]):02X}", header)


@dataclass(frozen=True)
class UrlRules:
    """Normalises URLs beyond the standard: different URLs of the same page become one.

    *drop_parameters* are names as in `DROPPED_PARAMETERS`. The other parameters keep their order, which
    matters to some sites.
    """

    drop_parameters: tuple[str, ...] = DROPPED_PARAMETERS
    _names: frozenset[str] = field(init=False, repr=False, compare=False)
    _starts: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = [name.lower() for name in self.drop_parameters]
        object.__setattr__(self, "_names", frozenset(names))
        object.__setattr__(self, "_starts", tuple(name[:-1] for name in names if name.endswith("*")))

    def clean(self, url: str) -> str:
        """Return canonical *url* without what the rules drop, and with uniform escapes.

        The result is canonical, and cleaning it again changes nothing.
        """
        if "?" not in url and "%" not in url and ";" not in url:
            return url
        # Canonical hosts have no percent sign.
        tidy = _UNTIDY_ESCAPE.sub(_tidy, url) if "%" in url else url
        path, mark, query = tidy.partition("?")
        if ";" in path and "jsessionid" in self._names:
            start = path.find("/", 8)
            path = path[:start] + _SESSION_IN_PATH.sub("", path[start:])
        if mark:
            query = "&".join([part for part in query.split("&") if part and not self._drops(part)])
            if path.endswith("/") and _SORTED_LISTING.fullmatch(query):
                query = ""
        cleaned = f"{path}?{query}" if query else path
        # Removing or decoding may have uncovered a dot segment: "/..;jsessionid=1".
        return canonicalise(cleaned) if cleaned != url and "/." in path else cleaned

    def _drops(self, parameter: str) -> bool:
        name, _, value = parameter.partition("=")
        name = name.lower()
        if name not in self._names and not name.startswith(self._starts):
            return False
        return name not in ID_PARAMETERS or _LOOKS_LIKE_ID(value) is not None


def _tidy(escape: re.Match[str]) -> str:
    character = chr(int(escape[1], 16))
    return character if character in _UNRESERVED else escape[0].upper()


def host_of(url: str) -> str:
    """Return the host of a canonical URL, without port."""
    start = url.index("://") + 3
    end = url.find("/", start)
    authority = url[start:] if end < 0 else url[start:end]
    if authority.startswith("["):
        return authority[: authority.index("]") + 1]
    return authority.partition(":")[0]


def origin_of(url: str) -> str:
    """Return scheme, host and port of a canonical URL: the scope of one robots.txt."""
    end = url.find("/", url.index("://") + 3)
    return url if end < 0 else url[:end]


@cache
def suffixes() -> PublicSuffixList:
    """Return the public-suffix list, read once, in half the library's time: few rules need an ASCII form."""
    with Path(PSLFILE).open(encoding="utf-8") as lines:
        rules = [line for line in lines if not line.startswith(("//", "\n"))]
    rules += [rule.strip().encode("idna").decode() for rule in rules if not rule.isascii()]
    return PublicSuffixList(rules, accept_encoded_idn=False)


def is_below_known_suffix(name: str) -> bool:
    """Whether *name* could be a site: it is below a listed suffix."""
    return suffixes().privatesuffix(name.lower(), accept_unknown=False) is not None


def is_public_suffix(name: str) -> bool:
    """Whether *name* is a listed suffix itself, such as org or co.uk: sites are only below it."""
    return bool(suffixes().publicsuffix(name.lower(), accept_unknown=False) == name.lower())


@lru_cache(maxsize=65_536)
def domain_of_host(host: str) -> str:
    """Return the registered domain of *host*, private suffixes such as github.io included.

    IP addresses, single labels and public suffixes are their own domain.
    """
    if host.startswith("[") or host.replace(".", "").isdigit():
        return host
    registered: str | None = suffixes().privatesuffix(host)
    return registered or host


def domain_of(url: str) -> str:
    """Return the domain, the unit of politeness, of a canonical URL. Ports do not make a new one."""
    return domain_of_host(host_of(url))


def domain_named(text: str) -> str:
    """Return the domain of what a person wrote: a domain, a host or a URL. Raises BadUrl."""
    return domain_of(canonicalise(text if "://" in text else f"http://{text}/"))


def fingerprint(url: str) -> int:
    """Return the 63-bit number that stands for a canonical URL in `seen`.

    A cryptographic hash, so that hostile pages cannot make URLs that collide with others. 63 bits, so that it
    is a positive integer in Redis.
    """
    return int.from_bytes(blake2b(url.encode(), digest_size=8).digest(), "big") >> 1


def shorten(url: str, domain: str) -> str:
    """Return the compact form of *url* in the queue of *domain*."""
    for code, prefix in _prefixes(domain):
        if url.startswith(prefix):
            return code + url[len(prefix) - 1 :]
    return url


def expand(short: str, domain: str) -> str:
    """Undo `shorten`."""
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
