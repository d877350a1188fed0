"""Learns how the lines of a page are judged, and writes the weights that the reader is built with.

    PYTHONPATH=.:.venv/lib/python3.11/site-packages python benchmarks/train_text.py SETS --weights \\
        crawlproj/parsing/reader/weights.h [--held-out]

SETS holds clones of the public sets that gold.py names and the set that docs_set.py makes; only the halves
that are not held out are learnt from. It needs ``torch`` (2.13) and ``rapidfuzz`` beside the project's
packages, 6 GB of memory and about ten minutes. The same sets, seed and version of torch give the
same weights.

The features of a line come from the reader itself (features.c), so they exist once. What a line should be
judged as is found by aligning the words of the page with those of its reviewed text. The network is small:
features and names to a hidden vector for each line; the mean of the page, and those of the neighbours, to a
verdict. It is trained on what is measured: the F1 of the words that a page's text would have.
"""

from __future__ import annotations

import argparse
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gold import GoldPage, read_sets, score, words
from rapidfuzz.distance import LCSseq
from torch import nn
from torch.nn import functional
from weights_file import write_weights

from crawlproj.parsing import _reader

LINE_FEATURES, PAGE_FEATURES = _reader.LINE_FEATURES, _reader.PAGE_FEATURES
HIDDEN, OF_PAGE, CONTEXT = 48, 16, 32
#: Lines on each side that a line is judged with.
REACH = 2
#: Names that fewer sites have are not learnt.
LEAST_PAGES = 40
MOST_WORDS_ALIGNED = 30_000
AT_ONCE, RATE, DECAY, KEPT = 12, 5e-3, 0.1, 0.998
#: Of names, features and hidden values, the share that is left out while learning.
DROP_NAMES, DROP_FEATURES, DROP = 0.6, 0.05, 0.3
#: What a set counts for beside the others.
WEIGHTS = {"wcxb": 1.0, "readability": 4.0, "articles": 3.0, "fundus": 0.6, "trafilatura": 0.3, "docs": 1.0}


#: Every name met, and its number.
NAMES: dict[str, int] = {}


@dataclass(slots=True)
class Sample:
    page: GoldPage
    texts: list[str]
    #: The names around each line, by their numbers in NAMES, what they count for, and how many a line has.
    names: np.ndarray
    name_weights: np.ndarray
    name_counts: np.ndarray
    of_page: np.ndarray
    of_lines: np.ndarray
    #: Words of each line, and how many of them are in the reviewed text; of all of that, how many.
    sizes: np.ndarray
    right: np.ndarray
    wanted: float


def sample_of(page: GoldPage) -> Sample | None:
    lines, of_page, of_lines = _reader.inspect(page.html)
    if not lines:
        return None
    texts = [text for text, _ in lines]
    line_words = [words(text) for text in texts]
    sizes = np.array([len(found) for found in line_words], dtype=np.float32)
    if page.text:
        right, wanted = aligned(line_words, words(page.text))
    else:
        right, wanted = by_phrases(page, texts, sizes)
    return Sample(
        page,
        texts,
        np.array(
            [NAMES.setdefault(name, len(NAMES)) for _, names in lines for name, _ in names], dtype=np.int32
        ),
        np.array([weight for _, names in lines for _, weight in names], dtype=np.float32),
        np.array([len(names) for _, names in lines], dtype=np.int32),
        np.frombuffer(of_page, dtype=np.float32).copy(),
        np.frombuffer(of_lines, dtype=np.float32).reshape(len(lines), LINE_FEATURES).copy(),
        sizes,
        right,
        wanted,
    )


def aligned(line_words: list[list[str]], wanted: list[str]) -> tuple[np.ndarray, float]:
    """How many words of each line are part of the longest common sequence of the page and its text."""
    numbers: dict[str, int] = {}
    flat = [numbers.setdefault(word, len(numbers)) for line in line_words for word in line][
        :MOST_WORDS_ALIGNED
    ]
    truth = [numbers.setdefault(word, len(numbers)) for word in wanted][:MOST_WORDS_ALIGNED]
    matched = np.zeros(len(flat), dtype=bool)
    for block in LCSseq.opcodes(flat, truth):
        if block.tag == "equal":
            matched[block.src_start : block.src_end] = True
    right, at = np.zeros(len(line_words), dtype=np.float32), 0
    for number, line in enumerate(line_words):
        right[number] = matched[at : at + len(line)].sum()
        at += len(line)
        # Common words match anywhere.
        if right[number] < 0.5 * len(line):
            right[number] = 0
    return right, float(len(wanted))


def by_phrases(page: GoldPage, texts: list[str], sizes: np.ndarray) -> tuple[np.ndarray, float]:
    """1 for lines with a phrase of the text, 0 for those with another one, -1 for the others."""
    right = np.full(len(texts), -1, dtype=np.float32)
    for number, text in enumerate(texts):
        folded = " ".join(text.split())
        if any(" ".join(phrase.split()) in folded for phrase in page.inside):
            right[number] = 1
        elif any(" ".join(phrase.split()) in folded for phrase in page.outside):
            right[number] = 0
    return right, 0.0


class Judge(nn.Module):
    def __init__(self, names: int) -> None:
        super().__init__()
        self.names = nn.EmbeddingBag(names + 1, HIDDEN, mode="sum", include_last_offset=True)
        nn.init.normal_(self.names.weight, std=0.05)
        self.line = nn.Linear(LINE_FEATURES, HIDDEN)
        self.page = nn.Linear(PAGE_FEATURES + 2 * HIDDEN, OF_PAGE)
        self.context = nn.Linear((2 * REACH + 1) * HIDDEN, CONTEXT)
        self.of_page = nn.Linear(OF_PAGE, CONTEXT, bias=False)
        self.verdict = nn.Linear(CONTEXT + HIDDEN, 1)
        self.drop = nn.Dropout(DROP)
        self.drop_features = nn.Dropout(DROP_FEATURES)

    def forward(self, batch: Batch) -> torch.Tensor:
        """The verdicts of all lines. Between two pages REACH lines of padding stand, which have none."""
        weights = batch.weights
        if self.training:
            # By name, not by line: a page whose names say nothing must be understood, too.
            kept = torch.rand(self.names.num_embeddings) >= DROP_NAMES
            weights = weights * kept[batch.ids] / (1 - DROP_NAMES)
        bags = self.names(batch.ids, batch.offsets, per_sample_weights=weights)
        lines = self.drop_features(batch.lines)
        hidden = self.drop(functional.relu(self.line(lines) + bags)) * batch.is_line[:, None]
        of_pages = batch.of_pages.shape[0]
        means = []
        for share in (batch.lines[:, 1] + 0.003, torch.ones_like(batch.is_line)):
            share = share * batch.is_line
            total = torch.zeros(of_pages).index_add(0, batch.numbers, share)
            weighted = hidden * (share / total[batch.numbers])[:, None]
            means.append(torch.zeros(of_pages, HIDDEN).index_add(0, batch.numbers, weighted))
        page = functional.relu(self.page(torch.cat([batch.of_pages, *means], dim=1)))
        padded = functional.pad(hidden, (0, 0, REACH, REACH))
        near = torch.cat([padded[shift : shift + len(hidden)] for shift in range(2 * REACH + 1)], dim=1)
        context = self.drop(functional.relu(self.context(near) + self.of_page(page)[batch.numbers]))
        return self.verdict(torch.cat([context, hidden], dim=1))[:, 0]


def vocabulary(samples: list[Sample]) -> dict[str, int]:
    """The names that enough pages have, and their new numbers."""
    pages = pages_with_names(samples)
    kept = sorted(name for name, number in NAMES.items() if pages[number] >= LEAST_PAGES and is_word(name))
    return {name: number for number, name in enumerate(kept)}


def pages_with_names(samples: list[Sample]) -> np.ndarray:
    pages = np.zeros(len(NAMES), dtype=np.int32)
    for sample in samples:
        pages[np.unique(sample.names)] += 1
    return pages


def new_numbers(known: dict[str, int]) -> np.ndarray:
    numbers = np.full(len(NAMES), -1, dtype=np.int32)
    for name, number in known.items():
        numbers[NAMES[name]] = number
    return numbers


def without_common(known: np.ndarray, samples: list[Sample]) -> np.ndarray:
    """Without the names that most often stand in other pages than documentation.

    A few generators must not say what "description" means: for the web it is a teaser.
    """
    docs = [sample for sample in samples if sample.page.of_set == "docs"]
    is_common = 2 * pages_with_names(docs) < pages_with_names(samples)
    return np.where(is_common, -1, known)


def is_word(name: str) -> bool:
    return re.fullmatch(r"[@=^]?[a-z]{2,24}", name) is not None


@dataclass(slots=True)
class Batch:
    """Some pages, one after the other."""

    ids: torch.Tensor
    weights: torch.Tensor
    offsets: torch.Tensor
    lines: torch.Tensor
    is_line: torch.Tensor
    numbers: torch.Tensor
    of_pages: torch.Tensor
    sizes: torch.Tensor
    right: torch.Tensor
    wanted: torch.Tensor
    importance: torch.Tensor


@dataclass(slots=True)
class Numbers:
    """A page as numbers, padded at its end."""

    sample: Sample
    ids: np.ndarray
    weights: np.ndarray
    counts: np.ndarray
    lines: np.ndarray
    is_line: np.ndarray
    sizes: np.ndarray
    right: np.ndarray


def numbers_of(sample: Sample, known: np.ndarray) -> Numbers:
    """*known* has the new number of each name, -1 for those that are not learnt."""
    ids, count = known[sample.names], len(sample.texts)
    of_line = np.repeat(np.arange(count), sample.name_counts)[ids >= 0]
    return Numbers(
        sample,
        ids[ids >= 0].astype(np.int64),
        sample.name_weights[ids >= 0],
        np.bincount(of_line, minlength=count + REACH),
        np.pad(sample.of_lines, ((0, REACH), (0, 0))),
        np.array([1.0] * count + [0.0] * REACH, dtype=np.float32),
        np.pad(sample.sizes, (0, REACH)),
        np.pad(sample.right, (0, REACH), constant_values=-1 if sample.wanted == 0 else 0),
    )


def batch_of(pages: list[Numbers]) -> Batch:
    def joined(parts: list[np.ndarray]) -> torch.Tensor:
        return torch.from_numpy(np.concatenate(parts))

    counts = np.concatenate([page.counts for page in pages])
    return Batch(
        joined([page.ids for page in pages]),
        joined([page.weights for page in pages]),
        torch.from_numpy(np.concatenate([[0], np.cumsum(counts)])),
        joined([page.lines for page in pages]),
        joined([page.is_line for page in pages]),
        torch.from_numpy(np.repeat(np.arange(len(pages)), [len(page.lines) for page in pages])),
        torch.from_numpy(np.stack([page.sample.of_page for page in pages])),
        joined([page.sizes for page in pages]),
        joined([page.right for page in pages]),
        torch.tensor([page.sample.wanted for page in pages], dtype=torch.float32),
        torch.tensor([WEIGHTS[page.sample.page.of_set] for page in pages]),
    )


def loss_of(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """What the F1 of the words of each page lacks, and a little of the entropy of its lines."""

    def sums(values: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(batch.wanted).index_add(0, batch.numbers, values)

    has_text = batch.wanted > 0
    chance = torch.sigmoid(logits) * batch.is_line
    found, size = sums(chance * batch.right.clamp(min=0)), sums(chance * batch.sizes)
    lacking = 1 - 2 * found / (size + batch.wanted + 1)
    # Of pages with phrases only, the lines that have some.
    share = torch.where(has_text[batch.numbers], torch.log1p(batch.sizes), (batch.right >= 0).float())
    share = share * batch.is_line / (sums(share * batch.is_line) + 1e-6)[batch.numbers]
    entropy = sums(
        functional.binary_cross_entropy_with_logits(
            logits, (batch.right > 0).float(), weight=share, reduction="none"
        )
    )
    return (batch.importance * torch.where(has_text, lacking + 0.3 * entropy, entropy)).mean()


def is_for_checking(page: GoldPage) -> bool:
    """A tenth of the training data is used for validation."""
    return hashlib.sha256(page.name.encode()).digest()[0] % 10 == 0


def text_of(sample: Sample, logits: torch.Tensor) -> str:
    return "\n".join(text for text, logit in zip(sample.texts, logits.tolist(), strict=False) if logit > 0)


def report(title: str, judge: Judge, samples: list[Sample], known: np.ndarray) -> None:
    judge.eval()
    by_set: dict[str, tuple[list[GoldPage], list[str]]] = {}
    with torch.no_grad():
        for sample in samples:
            pages, texts = by_set.setdefault(sample.page.of_set, ([], []))
            pages.append(sample.page)
            texts.append(text_of(sample, judge(batch_of([numbers_of(sample, known)]))))
    scores = {name: score(pages, texts) for name, (pages, texts) in sorted(by_set.items())}
    print(title, " ".join(f"{name} {value:.4f}" for name, value in scores.items()), flush=True)


def train(samples: list[Sample], known: np.ndarray, epochs: int, checked: list[Sample]) -> Judge:
    torch.manual_seed(7)
    order = np.random.default_rng(7)
    judge = Judge(int(known.max()) + 1)
    of_docs = without_common(known, samples)
    pages = [numbers_of(s, of_docs if s.page.of_set == "docs" else known) for s in samples]
    optimiser = torch.optim.AdamW(judge.parameters(), lr=RATE, weight_decay=DECAY)
    # Kept in the end is a moving mean of the last weights, which is right more often than any of them.
    means = [weight.detach().clone() for weight in judge.parameters()]
    steps = epochs * (len(pages) // AT_ONCE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=RATE, total_steps=steps, pct_start=0.15)
    for epoch in range(epochs):
        judge.train()
        total = 0.0
        shuffled = order.permutation(len(pages))
        for start in range(0, len(pages) - AT_ONCE + 1, AT_ONCE):
            batch = batch_of([pages[number] for number in shuffled[start : start + AT_ONCE]])
            loss = loss_of(judge(batch), batch)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(judge.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += float(loss.detach())
            with torch.no_grad():
                for mean, weight in zip(means, judge.parameters(), strict=True):
                    mean.lerp_(weight, 1 - KEPT)
        if checked and epoch % 5 == 4:
            report(f"epoch {epoch + 1} loss {total * AT_ONCE / len(pages):.4f}", judge, checked, known)
    with torch.no_grad():
        for mean, weight in zip(means, judge.parameters(), strict=True):
            weight.copy_(mean)
    return judge


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--check", action="store_true", help="leave out a tenth, and score it")
    parser.add_argument("--held-out", action="store_true", help="score the halves that were held out")
    given = parser.parse_args()
    # More threads sum in another order.
    torch.set_num_threads(1)
    samples = [s for page in read_sets(given.sets) if (s := sample_of(page))]
    learnt = [s for s in samples if not s.page.is_held_out]
    checked = [s for s in learnt if is_for_checking(s.page)] if given.check else []
    if given.check:
        learnt = [s for s in learnt if not is_for_checking(s.page)]
    known = vocabulary(learnt)
    print(f"{len(learnt)} pages, {sum(len(s.texts) for s in learnt)} lines, {len(known)} names", flush=True)
    numbers = new_numbers(known)
    judge = train(learnt, numbers, given.epochs, checked)
    report("learnt", judge, learnt, numbers)
    if checked:
        report("checked", judge, checked, numbers)
    if given.held_out:
        report("held out", judge, [s for s in samples if s.page.is_held_out], numbers)
    if given.weights:
        sizes = {"HIDDEN": HIDDEN, "OF_PAGE": OF_PAGE, "CONTEXT": CONTEXT, "REACH": REACH}
        state = {name: value.numpy() for name, value in judge.state_dict().items()}
        write_weights(sizes, state, known, given.weights)


if __name__ == "__main__":
    main()
