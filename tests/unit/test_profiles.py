"""Profiles are read as they are written, and what is wrong in them is said in one line with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawlproj import profiles
from crawlproj.config import load_config
from crawlproj.errors import BadArgument
from crawlproj.profiles import SHIPPED

SEEDS = 'seeds = ["https://example.org/"]\n'


def write(folder: Path, text: str, name: str = "news") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def complaint(folder: Path, text: str) -> str:
    path = write(folder, text)
    with pytest.raises(BadArgument) as caught:
        profiles.load(str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(path), "news.toml")


def test_everything_a_profile_says_is_in_it(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        mode = "sharded"
        run = "tuesday"
        shards = 3
        parsers = "1..4"
        seeds = ["https://example.org/", "example.com"]
        scope = "list"
        scope_domains = ["example.org"]
        include = ['/a{1,2}/', ',']
        exclude = []
        [limits]
        pages = 10
        seconds = 20
        bytes = 30
        depth = 4
        domain_pages = 5
        [settings]
        CRAWL_SITEMAPS = true
        DOWNLOAD_SLOTS = {"example.org" = {delay = 0.5}}
        """,
    )

    profile = profiles.load(str(path))

    assert profile == profiles.Profile(
        run="tuesday",
        seeds=("https://example.org/", "example.com"),
        shards=3,
        parsers="1..4",
        pages=10,
        seconds=20.0,
        bytes=30,
        settings=profile.settings,
    )
    config = load_config(profile.settings)
    assert (config.scope, config.scope_domains) == ("list", ("example.org",))
    assert (config.include, config.exclude) == (("/a{1,2}/", ","), ())
    assert (config.depth_limit, config.domain_pages, config.sitemaps) == (4, 5, True)
    assert config.download_slots == {"example.org": {"delay": 0.5}}
    assert all(isinstance(value, str) for value in profile.settings.values())


def test_what_a_profile_leaves_out_has_a_default(tmp_path: Path) -> None:
    path = write(tmp_path, SEEDS)

    profile = profiles.load(str(path))

    assert profile == profiles.Profile("news", ("https://example.org/",))


def test_a_single_profile_is_one_shard_without_parsers(tmp_path: Path) -> None:
    path = write(tmp_path, SEEDS + 'mode = "single"')

    profile = profiles.load(str(path))

    assert (profile.shards, profile.parsers) == (1, "0")


def test_a_seeds_file_is_looked_for_beside_its_profile(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("example.org\n")
    path = write(tmp_path, 'seeds = "list.txt"')

    profile = profiles.load(str(path))

    assert profile.seeds == (str(tmp_path / "list.txt"),)


def test_a_profile_is_found_by_its_name_in_the_folder(tmp_path: Path) -> None:
    path = write(tmp_path, SEEDS)

    assert profiles.find("news", tmp_path) == path
    assert profiles.load("news", tmp_path).run == "news"


def test_a_profile_of_ones_own_goes_before_a_shipped_one(tmp_path: Path) -> None:
    path = write(tmp_path, SEEDS, "broad")

    assert profiles.find("broad", tmp_path) == path
    assert profiles.find("broad", tmp_path / "none") == SHIPPED / "broad.toml"


@pytest.mark.parametrize("word", ["example.org", "seeds.txt", "https://example.org/a.toml", "../news", "-"])
def test_a_seed_is_not_taken_for_a_profile(tmp_path: Path, word: str) -> None:
    write(tmp_path, SEEDS)

    assert profiles.find(word, tmp_path / "profiles") is None


def test_an_unknown_name_is_answered_with_a_similar_one(tmp_path: Path) -> None:
    write(tmp_path, SEEDS)

    with pytest.raises(BadArgument, match=r"There is no profile 'nwes' in .*; did you mean news\?"):
        profiles.load("nwes", tmp_path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match=r"Cannot read the profile '.*away\.toml': No such file"):
        profiles.load(str(tmp_path / "away.toml"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seeds = [", "The profile 'news.toml' is not valid TOML: Invalid value (at end of document)."),
        (SEEDS + "run =\n", "is not valid TOML: Invalid value (at line 2, column 6)."),
        ("", "news.toml: seeds are missing: must be a seeds file, or a list of URLs and domains."),
        ("seeds = []", "news.toml: seeds = []: must be a seeds file"),
        ('seeds = "none.txt"', 'news.toml: seeds = "none.txt": there is no file'),
        ('seeds = ["a b"]', 'news.toml: seeds, number 1 = "a b": '),
        ('seeds = ["example.org", 7]', "news.toml: seeds, number 2 = 7: must be a URL or a domain."),
        (SEEDS + "shard = 2", "news.toml: unknown key shard; did you mean shards?"),
        (SEEDS + "zzz = 2", "news.toml: unknown key zzz; known: seeds, mode, run,"),
        (SEEDS + "limits.page = 2", "news.toml: unknown key limits.page; did you mean pages?"),
        (SEEDS + "limits = 2", "news.toml: limits = 2: must be a table"),
        (SEEDS + "limits.pages = -2", "news.toml: limits.pages = -2: must be a whole number, at least 0."),
        (
            SEEDS + "limits.pages = true",
            "limits.pages = true: must be a whole number, at least 0.",
        ),
        (SEEDS + "limits.depth = -1", "news.toml: limits.depth: DEPTH_LIMIT=-1 is out of range. Give"),
        (SEEDS + "shards = 0", "news.toml: shards = 0: must be a whole number, at least 1."),
        (SEEDS + 'shards = "2"', 'news.toml: shards = "2": must be a whole number, at least 1.'),
        (SEEDS + 'parsers = "4..1"', 'news.toml: parsers = "4..1": must be a number from 1, or'),
        (SEEDS + "parsers = true", "news.toml: parsers = true: must be a number from 1, or"),
        (SEEDS + 'mode = "both"', 'news.toml: mode = "both": must be one of single, sharded.'),
        (SEEDS + 'mode = ["single"]', 'news.toml: mode = ["single"]: must be one of single, sharded.'),
        (SEEDS + 'mode = "single"\nshards = 2', "news.toml: shards = 2: leave it out, or set mode ="),
        (SEEDS + 'run = "a b"', 'news.toml: run = "a b": must be up to 64 letters'),
        (SEEDS + 'scope = "hots"', "news.toml: scope: CRAWL_SCOPE='hots' is not one of its choices."),
        (SEEDS + 'scope = "list"', 'news.toml: CRAWL_SCOPE="list" follows nothing without'),
        (SEEDS + 'include = ["("]', "news.toml: include: CRAWL_INCLUDE has '(', which is not a regular"),
        (SEEDS + "settings.CRAWL_CHIAN = 2", "Unknown setting CRAWL_CHIAN. Did you mean CRAWL_CHAIN?"),
        (SEEDS + "settings.crawl_chain = 2", "settings.crawl_chain = 2: setting names are upper-case"),
        (
            SEEDS + 'scope = "host"\nsettings.CRAWL_SCOPE = "domain"',
            'news.toml: settings.CRAWL_SCOPE = "domain": scope already sets it.',
        ),
    ],
)
def test_what_is_wrong_is_said_with_file_key_value_and_remedy(tmp_path: Path, text: str, words: str) -> None:
    assert words in complaint(tmp_path, text)


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe")

    with pytest.raises(BadArgument, match="is not UTF-8 text"):
        profiles.load(str(path))


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.toml")), ids=lambda path: path.stem)
def test_the_shipped_profiles_can_be_used(path: Path) -> None:
    profile = profiles.load(path.stem)

    assert profile.run == path.stem
    assert profile.pages > 0
    load_config(profile.settings)


def test_both_modes_are_shipped() -> None:
    parsers = {profiles.load(path.stem).parsers for path in SHIPPED.glob("*.toml")}

    assert "0" in parsers
    assert len(parsers) > 1
