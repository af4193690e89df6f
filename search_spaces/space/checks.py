"""A study's rules and conditions, sorted by what they look at.

Most look at the server or at the environment alone, and are asked once per server or environment.
Only those that look at both are asked about pairs, and then once for all servers and environments
that are alike to them: a large space is judged without a look at its every point.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from search_spaces.configuration import Configuration, Speculation
from search_spaces.rules import RULE_FLAGS, RULES
from search_spaces.rules.candidate import Candidate
from search_spaces.rules.legality import candidate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from search_spaces.rules import Rule
    from search_spaces.rules.violation import Violation
    from search_spaces.space.combinations import Pairs
    from search_spaces.space.conditions import Matches, StudyCondition
    from search_spaces.study_file.study import Study
    from search_spaces.study_file.values import FixedValue

Kind = tuple[Hashable, ...]
"""What the checks of pairs see of a server, or of an environment; equal kinds are judged alike."""


class Check(Protocol):
    """A rule, or a condition of the study."""

    env: frozenset[str]
    server: bool

    def check(self, server: Candidate) -> Violation | None:
        """What a server breaks."""

    def of_server(self, server: Candidate) -> Any:  # noqa: ANN401 - its own, hashable
        """All that it needs to know of a server but for the environment."""

    def of_env(self, env: Mapping[str, FixedValue]) -> Any:  # noqa: ANN401 - its own, hashable
        """All that it needs to know of an environment."""

    def holds(self, server: Any, env: Any) -> bool:  # noqa: ANN401 - its own
        """Whether it holds for a server in an environment, by what it knows of them."""


class RuleCheck:
    """A rule, asked as a condition is."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.env = rule.env
        self.server = rule.server

    def check(self, server: Candidate) -> Violation | None:
        return self._rule.violation(server)

    def of_server(self, server: Candidate) -> Hashable:
        flags = frozenset(item for item in server.flags.items() if item[0] in RULE_FLAGS)
        return server.speculation, server.draft_tp, flags, server.has_draft_model

    def of_env(self, env: Mapping[str, FixedValue]) -> Hashable:
        return frozenset(item for item in env.items() if item[0] in self.env)

    def holds(self, server: Any, env: Any) -> bool:  # noqa: ANN401 - as for `Check`
        speculation, draft_tp, flags, has_draft_model = server
        whole = Candidate(speculation, draft_tp, dict(flags), dict(env), has_draft_model)
        return self._rule.check(whole) is None


class Checks:
    """What every point of a study must pass.

    Args:
        study: The study.
        conditions: Its conditions; those that are left out are not checked.
        watched: Conditions that are not checked, and that kinds tell of.

    Attributes:
        flags: The flags that any check looks at.
        env: The variables that the study varies and any check looks at.
        pairs_matter: Whether any check looks at both the server and what varies of its
            environment.
    """

    def __init__(
        self,
        study: Study,
        conditions: Sequence[StudyCondition],
        *,
        watched: Sequence[StudyCondition] = (),
    ) -> None:
        self._study = study
        checks: tuple[Check, ...] = (*map(RuleCheck, RULES), *conditions)
        varied = frozenset(study.space.env)
        self.flags = RULE_FLAGS.union(*(c.flags for c in (*conditions, *watched)))
        self.env = varied & frozenset[str]().union(*(c.env for c in (*checks, *watched)))
        # Variables that are the same in every launch are part of every server.
        self._of_server = tuple(check for check in checks if not check.env & varied)
        of_env = [check for check in checks if check.env & varied]
        self._of_env = tuple(check for check in of_env if not check.server)
        self._of_pairs = tuple(check for check in of_env if check.server)
        self._seen = (*self._of_pairs, *watched)
        self._watched = len(watched)
        self.pairs_matter = bool(self._of_pairs)
        self._judged = functools.cache(self._judge)

    def of_server(self, server: Configuration) -> tuple[Violation, ...]:
        """What a server breaks in any environment."""
        return _broken(self._of_server, candidate(server, self._study))

    def of_env(self, env: Pairs) -> tuple[Violation, ...]:
        """What an environment breaks with any server."""
        return _broken(self._of_env, self._in(env)) if self._of_env else ()

    def of_pair(self, point: Configuration) -> tuple[Violation, ...]:
        """What only a server and its environment together break."""
        return _broken(self._of_pairs, candidate(point, self._study))

    def server_kind(self, server: Configuration) -> Kind:
        """What the checks of pairs see of a server."""
        if not self._seen:
            return ()
        found = candidate(server, self._study)
        return tuple(check.of_server(found) for check in self._seen)

    def env_kind(self, env: Pairs) -> Kind:
        """What the checks of pairs see of an environment."""
        if not self._seen:
            return ()
        found = self._in(env).env
        return tuple(check.of_env(found) for check in self._seen)

    def watched_of(self, kind: Kind) -> tuple[Matches, ...]:
        """What a kind tells of the conditions that are watched."""
        return kind[len(kind) - self._watched :]  # type: ignore[return-value]

    def hold_together(self, server: Kind, env: Kind) -> bool:
        """Whether a server and an environment of these kinds make a point."""
        return not self._of_pairs or self._judged(server, env)

    def _judge(self, server: Kind, env: Kind) -> bool:
        kinds = zip(self._of_pairs, server, env, strict=False)  # the watched come after them
        return all(check.holds(of_server, of_env) for check, of_server, of_env in kinds)

    def _in(self, env: Pairs) -> Candidate:
        return candidate(Configuration(Speculation(), env=env), self._study)


def _broken(checks: Iterable[Check], server: Candidate) -> tuple[Violation, ...]:
    found = (check.check(server) for check in checks)
    return tuple(violation for violation in found if violation is not None)
