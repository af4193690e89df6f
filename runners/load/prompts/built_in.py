"""Texts of the built-in prompt sets.

`chat`, `code` and `maths` are files of prompts. `summary` and `retrieval` are composed, always in
the same way, from a library of passages that were written for this project. The library has sixty
passages of five paragraphs each, with questions that they answer.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from importlib import resources

_SEPARATOR = "\n%%\n"
_RETRIEVAL_PROMPTS = 360
_QUESTION = "? "


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of the library.

    Attributes:
        title: Title; all titles begin differently.
        paragraphs: Paragraphs; the text stays readable if one is left out.
        questions: Questions that the whole text answers.
    """

    title: str
    paragraphs: tuple[str, ...]
    questions: tuple[str, ...]

    @property
    def text(self) -> str:
        """All paragraphs."""
        return "\n\n".join(self.paragraphs)


def built_in_texts(name: str) -> tuple[str, ...]:
    """Return all texts of a built-in set in their fixed order."""
    if name == "summary":
        return tuple(_summaries())
    if name == "retrieval":
        return tuple(_retrieval(number) for number in range(_RETRIEVAL_PROMPTS))
    return _parts(name)


@functools.cache
def passages() -> tuple[Passage, ...]:
    """Return all passages of the library."""
    return tuple(_passage(part) for part in _parts("passages"))


def _parts(name: str) -> tuple[str, ...]:
    folder = resources.files("runners.load.prompts") / "prompt_sets"
    text = (folder / f"{name}.txt").read_text("utf-8")
    return tuple(part.strip("\n") for part in text.split(_SEPARATOR))


def _passage(part: str) -> Passage:
    title, *lines = [line for line in part.splitlines() if line]
    return Passage(
        title,
        tuple(line for line in lines if not line.startswith(_QUESTION)),
        tuple(line.removeprefix(_QUESTION) for line in lines if line.startswith(_QUESTION)),
    )


_TASKS = (
    # Each task has its own first word, then the title: all prompts begin differently.
    (
        "Summarise “{title}” in three sentences for a reader who has not seen it.",
        "Summarise “{title}” in at most sixty words, without opinions of your own.",
        "Summarise “{title}” as five bullet points, in the order of the text.",
    ),
    (
        "From “{title}” below, pull out every number with its unit and say what it is.",
        "From “{title}” below, list who does what, a line for each person or body.",
        "From “{title}” below, name the problem, its cause and what was done, each in a line.",
    ),
    (
        "Turn “{title}” into a short news item with a headline, for a local paper.",
        "Turn “{title}” into an e-mail of two paragraphs to colleagues who are in a hurry.",
        "Turn “{title}” into plain language that a twelve-year-old would read to the end.",
    ),
    (
        "Read “{title}” and write an abstract of eighty words; end with an open question.",
        "Read “{title}”, then give its main claim and the two facts that support it best.",
        "Read “{title}” and summarise it backwards: outcome first, then how it came about.",
    ),
    (
        (
            "Both “{title}” and “{other}” follow. Summarise each in two sentences, then say what "
            "they have in common."
        ),
        (
            "Both “{title}” and “{other}” are for one newsletter. Write a teaser of forty words "
            "for each of them."
        ),
    ),
    (
        (
            "With “{title}”, “{other}” and “{third}” in front of you, write one digest of a "
            "hundred and fifty words that gives each its due."
        ),
        (
            "With “{title}”, “{other}” and “{third}” as sources, make a table: topic, most "
            "surprising fact, what remains uncertain."
        ),
    ),
)


def _summaries() -> list[str]:
    """Compose six prompts per passage; each leaves out one paragraph, but never the first."""
    library = passages()
    out = []
    for index, passage in enumerate(library):
        for form, tasks in enumerate(_TASKS):
            # Each form combines a passage with other passages.
            other = library[(index + 7 * form + 1) % len(library)]
            third = library[(index + 11 * form + 5) % len(library)]
            task = tasks[index % len(tasks)].format(
                title=passage.title, other=other.title, third=third.title
            )
            shown = [passage]
            if form >= 4:
                shown += [other, third][: form - 3]
            texts = [_without(p, form + n) for n, p in enumerate(shown)]
            out.append("\n\n".join([task, *texts]))
    return out


def _without(passage: Passage, left_out: int) -> str:
    first, *others = passage.paragraphs
    del others[left_out % len(others)]
    return "\n\n".join([passage.title, first, *others])


def _retrieval(number: int) -> str:
    """Compose a long context in random order, and questions about three of its passages."""
    draw = random.Random(f"retrieval/{number}")  # noqa: S311 - reproducible
    chosen = draw.sample(passages(), draw.randint(7, 11))
    asked = sorted(draw.sample(range(len(chosen)), 3))
    # A unique reference comes first, as in requests from a ticket system.
    lines = [
        (
            f"{_reference(number)}: answer the questions at the end from the documents that "
            "follow, and from nothing else. Say which document each answer is from."
        )
    ]
    for place, passage in enumerate(chosen, start=1):
        lines.append(f"[{place}] {passage.title}\n\n{passage.text}")
    questions = [draw.choice(chosen[place].questions) for place in asked]
    lines.append("\n".join(["Questions:", *(f"- {question}" for question in questions)]))
    return "\n\n".join(lines)


def _reference(number: int) -> str:
    """Return a reference such as `"QX 47-K12"`; two references share little of their beginning."""
    scattered = number * 7919 % 17576
    letters = "".join(chr(ord("A") + scattered // 26**n % 26) for n in range(3))
    return f"{letters[:2]} {number * 31 % 97:02d}-{letters[2]}{number}"
