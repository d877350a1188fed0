"""A 64-bit number for a text, of which texts that are nearly the same differ in few bits. Pure."""

from __future__ import annotations

from array import array
from sys import byteorder
from zlib import crc32

from crawlproj.parsing import native

#: Words looked at; a longer text is known by its first ones.
_MOST_WORDS = 20_000
#: A text with longer words than this on average is written without spaces; its words are pairs of characters.
_SPACED_CHARS = 20
_SPREAD = 0x9E3779B1


def simhash(text: str, *, fast: bool = True) -> int | None:
    """Return the hash of the different words of *text* as a signed number; None if it has none.

    Each bit is set if it is in the hashes of most words; those with the same CRC are taken for one. It is the
    same on every machine, and no secret: a page that wants to resemble another one can.
    """
    spaced = text.encode("utf-8", "replace")
    if fast and (found := native.simhash(spaced, _MOST_WORDS)) is not None:
        result, count = found
        if count == 0 or count * _SPACED_CHARS >= len(text):
            return _signed(result) if count else None
    words = spaced.split(None, _MOST_WORDS)[:_MOST_WORDS]
    if not words:
        return None
    if len(words) * _SPACED_CHARS < len(text):
        text = text[:_MOST_WORDS]
        words = [text[at : at + 2].encode("utf-8", "replace") for at in range(len(text) - 1)]
    different = set(map(crc32, words))
    count = len(different)
    # Sixty-four bits a word, all of them in one number: the arithmetic of thousands of words is then a
    # few operations of C. The upper half of each is its CRC, the lower one the middle of a product of it.
    crcs = int.from_bytes(array("Q", different).tobytes(), byteorder)
    half = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * count, "little")
    hashes = (crcs << 32) | ((crcs * _SPREAD >> 16) & half)
    columns = hashes.to_bytes(8 * count, "little")
    ones = int.from_bytes(b"\1" * count, "little")
    masks = [ones << bit for bit in range(7, -1, -1)]
    half_count = count // 2
    result = 0
    for byte in range(7, -1, -1):
        column = int.from_bytes(columns[byte::8], "little")
        for mask in masks:
            result = 2 * result + ((column & mask).bit_count() > half_count)
    return _signed(result)


def _signed(number: int) -> int:
    # Every format and database has that.
    return number - (1 << 64) if number >> 63 else number
