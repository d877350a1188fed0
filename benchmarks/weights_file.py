"""The network that train_text.py trains, written as the C that the reader is built with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np


def array(name: str, values: np.ndarray) -> str:
    """An array of C. Three digits are enough: more change hardly any verdict."""

    def row(numbers: np.ndarray) -> str:
        return "{" + ",".join(f"{number:.3g}" for number in numbers) + "}"

    dimensions = "".join(f"[{size}]" for size in values.shape)
    rows = row(values) if values.ndim == 1 else "{\n" + ",\n".join(map(row, values)) + "}"
    return f"static const float {name}{dimensions} = {rows};\n"


def write_weights(
    sizes: Mapping[str, int], state: Mapping[str, np.ndarray], known: Mapping[str, int], path: Path
) -> None:
    """*sizes* are the dimensions by their names in C, *known* the names of elements in their order."""
    names = "\n".join(f'    "{name}",' for name in known)
    parts = [
        "/* Made by benchmarks/train_text.py; do not edit. */",
        *(f"#define {name} {size}" for name, size in sizes.items()),
        f"#define NAME_COUNT {len(known)}",
        f"static const char *const known_names[NAME_COUNT] = {{\n{names}\n}};",
        array("name_weights", state["names.weight"][: len(known)]),
        array("line_weights", state["line.weight"].T),
        array("line_bias", state["line.bias"]),
        array("page_weights", state["page.weight"].T),
        array("page_bias", state["page.bias"]),
        array("context_weights", state["context.weight"].T),
        array("context_of_page", state["of_page.weight"].T),
        array("context_bias", state["context.bias"]),
        array("verdict_weights", state["verdict.weight"][0]),
        array("verdict_bias", state["verdict.bias"]),
    ]
    path.write_text("\n".join(parts), encoding="utf-8")
