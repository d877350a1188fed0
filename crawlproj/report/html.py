"""The parts of an HTML page that loads no other file: its frame, style, tiles, figures, tables. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from crawlproj.charts import DARK_STYLE, escaped

#: Narrow, so that numbers stay readable when a phone scales a chart down.
WIDTH_PX = 500
_STYLE = """\
:root{color-scheme:light dark;--ground:#f4f5f7;--card:#fff;--ink:#1f2328;--faint:#5c6570;--line:#e1e4e8}
@media (prefers-color-scheme: dark){
 :root{--ground:#0d1117;--card:#161b22;--ink:#e6edf3;--faint:#9aa4b0;--line:#30363d}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1640px;padding:24px;background:var(--ground);color:var(--ink);
 font:15px/1.45 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
h1{font-size:26px;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:19px;margin:32px 0 12px}
p,figcaption,footer{color:var(--faint);margin:0}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(160px,1fr));gap:12px;margin:20px 0 0}
dl div,figure,.table{background:var(--card);border:1px solid var(--line);border-radius:10px}
dl div{padding:12px 16px}
dt,dd span{color:var(--faint);font-size:13px}
dd{margin:0;font-size:21px;font-weight:600;font-variant-numeric:tabular-nums}
dd span{display:block;font-weight:400}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,380px),1fr));gap:16px}
figure{margin:0;display:flex;flex-direction:column;overflow:hidden}
figure svg{display:block;width:100%;height:auto}
figcaption{padding:0 16px 12px;font-size:13px}
.table{overflow-x:auto;padding:12px 16px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;font-size:16px;padding-bottom:6px}
th{font-weight:400;font-size:13px;color:var(--faint)}
th,td{text-align:right;padding:4px 0 4px 14px;border-top:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0;max-width:180px;overflow:hidden;text-overflow:ellipsis}
footer{margin-top:32px;font-size:13px}
"""


def document(title: str, parts: Iterable[str]) -> str:
    """Return the page; *parts* are its body, in order."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Text from the web is escaped; should some slip through, nothing is run or loaded.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escaped(title)}</title><style>{_STYLE}{DARK_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def section(title: str, cards: Iterable[str]) -> str:
    return f'<h2>{title}</h2>\n<div class="cards">\n' + "\n".join(cards) + "\n</div>"


def tiles(numbers: Iterable[tuple[str, str, str]]) -> str:
    each = (
        f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}"
        + (f"<span>{escaped(more)}</span>" if more else "")
        + "</dd></div>"
        for name, value, more in numbers
    )
    return f"<dl>{''.join(each)}</dl>"


def figure(svg: str, caption: str = "") -> str:
    text = f"<figcaption>{escaped(caption)}</figcaption>" if caption else ""
    return f"<figure>{svg}{text}</figure>"


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    names = "".join(f"<th>{escaped(name)}</th>" for name in head)
    lines = ["<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    body = "".join(lines) or f'<tr><td colspan="{len(head)}">none</td></tr>'
    return (
        f'<div class="table"><table><caption>{escaped(title)}</caption><tr>{names}</tr>{body}</table></div>'
    )


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02} min"


def size(count: float) -> str:
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count:.0f} B"


def date(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
