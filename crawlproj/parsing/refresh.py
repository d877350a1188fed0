"""Where a page sends its reader: ``<meta http-equiv=refresh>`` and the header `Refresh`. Pure."""

from __future__ import annotations

import re

#: A longer wait is for people who read on: the target is another page, not the place this one moved to.
REDIRECT_SECONDS = 30.0
#: As the HTML standard has it: seconds, their fraction ignored; then a mark or white space; then ``url=``,
#: which may be missing; then the target. All but the seconds may be.
_REFRESH = re.compile(
    r"[\t\n\f\r ]*+(?P<seconds>[0-9]++|(?=\.))[0-9.]*+"
    r"(?:\Z|(?=[;,\t\n\f\r ])[\t\n\f\r ]*+[;,]?+[\t\n\f\r ]*+)"
    r"(?:[Uu][Rr][Ll][\t\n\f\r ]*+=[\t\n\f\r ]*+)?(?P<quote>[\"'])?+(?P<target>.*)\Z",
    re.DOTALL | re.ASCII,
)


def refresh_target(content: str) -> tuple[float, str] | None:
    """Return the delay in seconds and the target as it is written, '' for the page itself.

    None if *content* says neither. Follows the "shared declarative refresh steps" of the HTML standard.
    """
    match = _REFRESH.match(content)
    if match is None:
        return None
    target, quote = match["target"], match["quote"]
    if quote:
        target = target.partition(quote)[0]
    return float(match["seconds"] or 0), target.strip()
