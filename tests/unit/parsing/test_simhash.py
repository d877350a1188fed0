from __future__ import annotations

from itertools import combinations
from random import Random
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawlproj.parsing.html import simhash_of
from crawlproj.simweb.words import LANGUAGES, sentences

#: Hashes that differ in no more bits are taken for the same text.
NEAR = 6


def text_of(seed: int, count: int = 60) -> str:
    """A text of words that no other text has: syllables in a random order."""
    random = Random(seed)
    syllables = [a + b for a in "bdfglmnprstvz" for b in ("a", "e", "i", "o", "u", "ai", "on")]
    words = ["".join(random.choices(syllables, k=3)) for _ in range(count * 8)]
    return " ".join(words)


def numbered(text: str | None) -> int:
    number = simhash_of(text or "")
    assert number is not None
    return number


def distance(one: int, other: int) -> int:
    """In how many of 64 bits two hashes differ."""
    return ((one ^ other) & (1 << 64) - 1).bit_count()


def test_the_hash_of_a_text_is_the_same_on_every_machine_and_day() -> None:
    assert simhash_of("the quick brown fox jumps over the lazy dog") == -5968351062088477488


@pytest.mark.parametrize("seed", range(20))
def test_a_text_with_a_few_words_changed_is_near(seed: int) -> None:
    words = text_of(seed).split()
    changed = [*words]
    for place in Random(seed).sample(range(len(words)), len(words) // 100):
        changed[place] = "changed" + str(place)

    assert distance(numbered(" ".join(words)), numbered(" ".join(changed))) <= NEAR


def test_unrelated_texts_are_far() -> None:
    hashes = [numbered(text_of(seed)) for seed in range(40)]

    distances = [distance(one, other) for one, other in combinations(hashes, 2)]

    assert min(distances) > 2 * NEAR
    assert 30 < sum(distances) / len(distances) < 34


@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_of_the_simulated_web_are_near_their_twins(language: str) -> None:
    text = "".join(Random(1).choices(sentences(language), k=40))

    assert distance(numbered(text), numbered(text + sentences(language)[0])) <= NEAR


def test_each_bit_is_set_in_half_of_all_texts() -> None:
    hashes = [numbered(text_of(seed, 10)) for seed in range(400)]

    shares = [sum(number >> bit & 1 for number in hashes) / len(hashes) for bit in range(64)]

    assert min(shares) > 0.38
    assert max(shares) < 0.62


def test_a_language_without_spaces_has_words_too() -> None:
    text = "".join(Random(1).choices(sentences("ja"), k=40)).replace("。", "")

    other = "".join(Random(2).choices(sentences("ja"), k=40)).replace("。", "")

    assert distance(numbered(text), numbered(text[:-3])) <= NEAR
    assert numbered(text) != numbered(other)


@pytest.mark.parametrize("text", ["", " \n"])
def test_no_words_have_no_hash(text: str) -> None:
    assert simhash_of(text) is None


@given(st.text())
def test_any_text_has_a_hash_of_64_bits(text: str) -> None:
    number = simhash_of(text)

    assert number is None or -(1 << 63) <= number < 1 << 63


def test_words_with_the_same_crc_count_once() -> None:
    assert crc32(b"plumless") == crc32(b"buckeroo")

    assert simhash_of("plumless buckeroo cat") == simhash_of("plumless cat")


def expected_of(words: list[str]) -> int:
    """Return the hash of different *words*, step by step as it is meant."""
    crcs = {crc32(word.encode()) for word in words}
    hashes = [crc << 32 | (crc * 0x9E3779B1 >> 16) & 0xFFFFFFFF for crc in crcs]
    number = sum((sum(one >> bit & 1 for one in hashes) > len(hashes) // 2) << bit for bit in range(64))
    return number - (1 << 64) if number >> 63 else number


@given(st.lists(st.text("abcé\u00a0-", min_size=1, max_size=6), min_size=1, max_size=50))
def test_the_hash_is_the_majority_of_the_hashes_of_words(words: list[str]) -> None:
    assert simhash_of(" ".join(words)) == expected_of(words)


def test_a_text_without_spaces_is_taken_as_pairs_of_characters() -> None:
    text = "日本語の文章は空白なしで書かれることが多いのであるから対にして数える"

    assert simhash_of(text) == expected_of([text[start : start + 2] for start in range(len(text) - 1)])


def test_only_the_first_words_of_a_long_text_count() -> None:
    words = [f"w{number}" for number in range(20_000)]

    assert simhash_of(" ".join([*words, "more", "and", "more"])) == simhash_of(" ".join(words))


def test_only_the_first_characters_of_a_long_text_without_spaces_count() -> None:
    chosen = Random(1)
    text = "".join(chr(chosen.randrange(0x4E00, 0x9FA5)) for _ in range(30_000))

    assert simhash_of(text) == simhash_of(text[:20_000]) != simhash_of(text[:19_900])
