"""Questions with an option, a default and a parser."""

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
    """A question.

    Attributes:
        flag: Option that answers the question, with dashes.
        text: The question without a question mark.
        default: Answer for Enter, `--yes` and a missing terminal; `None` if the user must answer.
        read: Parses an answer; raises `ValueError` with the reason and the remedy.
        about: Explanation before the question.
    """

    flag: str
    text: str
    default: str | None
    read: Callable[[str], T]
    about: str = ""


class Asker:
    """Answers questions from options, else from the user, else with their defaults.

    Args:
        interactive: Whether the user can be asked. Questions go to stderr.
    """

    def __init__(self, *, interactive: bool) -> None:
        self.interactive = interactive

    def ask(self, question: Question[T], given: str | None) -> T:
        """Return the answer.

        Raises:
            CommandError: The option has an invalid value, a question without a default cannot be
                asked, or the user ended the input.
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
        """Print a line for the user, if interactive."""
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
