"""What the documents name exists: links, files, commands, options, targets, settings and metrics."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from scrapy.settings import Settings

from crawlproj.config import Config
from crawlproj.observe.metrics import METRICS, RUN_METRICS

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/**/*.md"),
        ROOT / "benchmarks/README.md",
    ]
)
#: These also name what is gone.
HISTORY = [ROOT / "CHANGELOG.md", *ROOT.glob("docs/decisions/0009-*.md")]
CURRENT = [page for page in PAGES if page not in HISTORY]

LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^ *```[\w ]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    (\S.*)$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
FOLDERS = ("benchmarks", "crawlproj", "deploy", "docs", "examples", "tests")
#: The name of a file or folder alone, and one within a command line.
PATH = re.compile(r"[\w-][\w.-]*(?:/[\w.-]+)*(?:\.(?:py|lua|md|toml|yml|svg|conf)|/)")
PATH_WITHIN = re.compile(rf"\b(?:{'|'.join(FOLDERS)})/[\w./-]+\.(?:py|md|toml|yml)")
#: A word in capitals stands for something else; people make the others.
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}(\b|_)|^(secrets|data)/|news\.toml|spiders/products\.py")
OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
SCRAPY = re.compile(r"(?<![\w./-])(?<!from )(?:scrapy|crawlproj) ([a-z]+)([^|;&]*)")
MAKE = re.compile(r"(?:^|[;&] *)make +([a-z-]*)((?: *[A-Z]+=(?:\"[^\"]*\"|\S*))*)")
ARGS = re.compile(r"ARGS=(?:\"([^\"]*)\"|(\S*))")


#: What a native reader stumbles over; STYLE.md lists it, with what to write instead.
DIALECT = re.compile(r"\b(?:goes? on|is away|(?:can|cannot|may) be had|to object to|(?:is|are) told|tells)\b")
PROSE = [page for page in CURRENT if page.name != "STYLE.md"]
#: Comments, messages and names of tests; underscores count as spaces.
CODE = sorted(
    path
    for pattern in ("crawlproj/**/*.py", "crawlproj/**/*.lua", "crawlproj/**/*.[ch]", "tests/**/*.py")
    for path in ROOT.glob(pattern)
    if path != Path(__file__)
)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code_in(text: str) -> Iterator[str]:
    """What is set as code: lines of blocks, up to an explanation two spaces to the right; inline code."""
    prose = BLOCK.sub("", text)
    for line in [*"".join(BLOCK.findall(text)).splitlines(), *INDENTED.findall(prose)]:
        yield re.split(r"  +|\s#", line.strip())[0]
    yield from INLINE.findall(prose)


@cache
def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def file_names() -> set[str]:
    inside = [path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return {*inside, *(path.name for path in ROOT.iterdir())}


@cache
def options_of(command: str) -> set[str] | None:
    """The options of ``scrapy COMMAND``; None if there is no such command."""
    for package in ("crawlproj.commands", "scrapy.commands"):
        try:
            made = importlib.import_module(f"{package}.{command}").Command()
        except ModuleNotFoundError:
            continue
        made.settings = Settings()
        parser = argparse.ArgumentParser(conflict_handler="resolve")
        made.add_options(parser)
        return set(OPTION.findall(parser.format_help()))
    return None


def missing_links(page: Path, text: str) -> list[str]:
    missing = []
    for link in LINK.findall(BLOCK.sub("", text)):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if "://" not in link and (not target.exists() or (anchor and anchor not in anchors(target))):
            missing.append(link)
    return missing


def missing_files(page: Path, text: str) -> list[str]:
    """A path counts from the top, from the package, or from the page; a bare name may be anywhere."""
    named = [
        name
        for code in code_in(text)
        for name in (PATH.findall(code) if PATH.fullmatch(code) else PATH_WITHIN.findall(code))
    ]
    return [
        name
        for name in named
        if not PLACEHOLDER.search(name)
        and not any((start / name).exists() for start in (ROOT, ROOT / "crawlproj", page.parent))
        and name not in file_names()
    ]


def missing_commands(text: str) -> list[str]:
    missing = []
    for command, rest in (found for code in code_in(text) for found in SCRAPY.findall(code)):
        options = options_of(command)
        if options is None:
            missing.append(command)
        else:
            missing += [
                option for option in OPTION.findall(re.sub(r"\"[^\"]*\"?", "", rest)) if option not in options
            ]
    return missing


def missing_targets(text: str) -> list[str]:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    missing = []
    for target, given in (found for code in code_in(text) for found in MAKE.findall(code)):
        variables = re.findall(r"\b([A-Z]+)=", re.sub(r"\"[^\"]*\"", "", given))
        missing += [target] if target and not re.search(rf"^{target}:", makefile, re.MULTILINE) else []
        missing += [name for name in variables if not re.search(rf"^{name} *\?=", makefile, re.MULTILINE)]
        if target == "bench" and (arguments := ARGS.search(given)):
            benchmarks = re.match(r"(?:[a-z]+ ?)*", arguments[1] or arguments[2])
            names = set(benchmarks[0].split() if benchmarks else []) - {"all"}
            missing += [name for name in names if not (ROOT / f"benchmarks/bench_{name}.py").is_file()]
    return missing


def missing_names(text: str) -> list[str]:
    """Settings and metrics. Variables of docker-compose.yml begin as settings do."""
    known = {f"CRAWL_{option.name.upper()}" for option in fields(Config)}
    known |= {metric.name for metric in [*METRICS.values(), *RUN_METRICS.values()]}
    known |= set(re.findall(r"CRAWL_[A-Z]+", (ROOT / "docker-compose.yml").read_text("utf-8")))
    found = re.findall(r"(?<!Unknown setting )\b(?:CRAWL(?:_[A-Z]+)+|crawlproj(?:_[a-z]+){2,})\b", text)
    return [name for name in found if name not in known]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert missing_links(page, page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", CURRENT, ids=name_of)
def test_every_file_that_is_named_exists(page: Path) -> None:
    assert missing_files(page, page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", CURRENT, ids=name_of)
def test_every_command_option_target_setting_and_metric_exists(page: Path) -> None:
    text = page.read_text("utf-8")

    assert missing_commands(text) + missing_targets(text) + missing_names(text) == []


def test_every_example_of_style_that_names_its_file_is_in_it() -> None:
    blocks = re.findall(
        r"```\w+\n(?:#|--) (\S+\.(?:py|lua))\n(.*?)```", (ROOT / "STYLE.md").read_text("utf-8"), re.DOTALL
    )

    drifted = [name for name, code in blocks if code not in dedented((ROOT / name).read_text("utf-8"), code)]

    assert len(blocks) > 4
    assert drifted == []


def dedented(text: str, code: str) -> str:
    """*text* with the indentation taken away that its first line of *code* has."""
    indent = re.search(rf"^( *){re.escape(code.splitlines()[0])}$", text, re.MULTILINE)
    return re.sub(rf"^{indent[1]}", "", text, flags=re.MULTILINE) if indent else text


def test_decision_0001_has_the_layers_of_the_import_contract() -> None:
    [contract] = re.findall(
        r"^layers =\n((?:    .+\n)+)", (ROOT / ".importlinter").read_text("utf-8"), re.MULTILINE
    )
    [stated] = BLOCK.findall((ROOT / "docs/decisions/0001-import-layers.md").read_text("utf-8"))

    assert stated == re.sub(r"^    |[()]", "", contract, flags=re.MULTILINE)


@pytest.mark.parametrize("page", PROSE, ids=name_of)
def test_no_dialect_is_written(page: Path) -> None:
    assert DIALECT.findall(page.read_text("utf-8")) == []


def test_no_dialect_is_in_the_code() -> None:
    found = {name_of(path): DIALECT.findall(path.read_text("utf-8").replace("_", " ")) for path in CODE}

    assert len(found) > 300
    assert {name: words for name, words in found.items() if words} == {}


def test_the_readme_has_at_most_90_lines() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 90


def test_every_document_has_its_place_in_the_order() -> None:
    listed = {
        (ROOT / "docs" / link).resolve()
        for link in LINK.findall((ROOT / "docs/README.md").read_text("utf-8"))
    }

    assert [name_of(page) for page in ROOT.glob("docs/**/*.md") if page not in listed] == ["docs/README.md"]


def test_the_search_finds_what_does_not_exist() -> None:
    page = ROOT / "docs/README.md"
    text = """
See [a](gone.md), [b](../README.md#gone), `crawlproj/gone.py`, `gone.lua`, `frontier/gone/`.

```
scrapy gone
scrapy run seeds.txt --gone 3     scrapy run --explained
make gone ARGS=1
make crawl GONE=1
make bench ARGS="versus gone --quick"
python benchmarks/gone.py
```

`CRAWL_GONE` and `crawlproj_gone_total`.
"""

    assert missing_links(page, text) == ["gone.md", "../README.md#gone"]
    assert missing_files(page, text) == [
        "benchmarks/gone.py",
        "crawlproj/gone.py",
        "gone.lua",
        "frontier/gone/",
    ]
    assert missing_commands(text) == ["gone", "--gone"]
    assert missing_targets(text) == ["gone", "GONE", "gone"]
    assert missing_names(text) == ["CRAWL_GONE", "crawlproj_gone_total"]
