"""The record of a spill file: links that wait on a machine's disk until Redis has room for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpillRecord:
    """How many links a spill file holds, and on which host it is; the key of the record is its name."""

    links: int
    host: str

    @classmethod
    def decode(cls, text: str) -> SpillRecord:
        links, _, host = text.partition(" ")
        return cls(int(links), host)

    def encode(self) -> str:
        return f"{self.links} {self.host}"
