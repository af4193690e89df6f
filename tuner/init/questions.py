"""Plain questions: each has a flag, a default, and a reader that says what is wrong."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import typer

from tuner.errors import CommandError, Exit

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One question.

    Attributes:
        flag: The option that answers it, with dashes.
        text: What is asked, without a question's end.
        default: What Enter, `--yes` and a missing terminal answer; `None` where there is no
            answer but the user's.
        read: Reads an answer; raises `ValueError` with what is wrong and what to write instead.
        about: A line before the question, for those who wonder.
    """

    flag: str
    text: str
    default: str | None
    read: Callable[[str], T]
    about: str = ""


class Asker:
    """Answers questions from flags, else from a person, else with their defaults.

    Args:
        interactive: Whether a person may be asked. Questions go to stderr.
    """

    def __init__(self, *, interactive: bool) -> None:
        self.interactive = interactive

    def ask(self, question: Question[T], given: str | None) -> T:
        """The answer.

        Raises:
            CommandError: The flag's value is wrong, or nobody can be asked what has no default,
                or the person left.
        """
        if given is not None:
            try:
                return question.read(given)
            except ValueError as error:
                raise CommandError(f"{question.flag} {given!r}: {error}") from None
        if not self.interactive:
            if question.default is None:
                raise CommandError(
                    f"{question.flag} is missing: nobody is at a terminal to be asked "
                    f"({question.text})"
                )
            return question.read(question.default)
        return self._of_person(question)

    def say(self, text: str) -> None:
        """A line for the person that is asked."""
        if self.interactive:
            typer.echo(text, err=True)

    def _of_person(self, question: Question[T]) -> T:
        if question.about:
            self.say(textwrap.fill(question.about, 88, initial_indent="  ", subsequent_indent="  "))
        while True:
            try:
                answer: str = typer.prompt(
                    question.text,
                    # An empty answer is read like any other, so that it is said what is missing.
                    default=question.default or "",
                    show_default=bool(question.default),
                    err=True,
                )
            except typer.Abort:
                typer.echo("", err=True)
                raise CommandError("stopped; nothing was written", Exit.INTERRUPTED) from None
            try:
                return question.read(answer)
            except ValueError as error:
                self.say(f"  {error}")
