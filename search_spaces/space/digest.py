"""A digest of what a study searches, by which a stored study knows its file again."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from search_spaces.rules.legality import canonical_tuned_env
from search_spaces.space.conditions import condition_content

if TYPE_CHECKING:
    from collections.abc import Iterable

    from search_spaces.space.parameters import SubSpaceTree
    from search_spaces.study_file.study import Study


def space_digest(study: Study, trees: tuple[SubSpaceTree, ...]) -> str:
    """A digest of model, server and space; 16 hexadecimal digits.

    The order of keys, choices, sub-spaces and conditions, and how they are spelled, do not matter;
    neither do workload, objective, budget and comments.
    """
    space = study.space
    content: dict[str, Any] = {
        "model": study.model.model_dump(),
        "flags": {k: v for k, v in study.server.flags.items() if v is not None},
        "env": study.server.env,
        "speculation": _texts(
            s.to_dict() for s in {s for tree in trees if not tree.own_flags for s in tree.paths}
        ),
        "draft_tp": sorted(space.draft_tp or ()),
        "tuned_flags": {k: _texts(v) for k, v in space.flags.items()},
        "tuned_env": {
            k: _texts(canonical_tuned_env({k: v}, study)[k] for v in choices)
            for k, choices in space.env.items()
        },
    }
    # A study without these has the digest that older versions stored it with.
    if own := [tree for tree in trees if tree.own_flags]:
        content["sub_space_flags"] = _texts(
            [speculation.to_dict(), {k: _texts(v) for k, v in sorted(tree.own_flags.items())}]
            for tree in own
            for speculation in tree.paths
        )
    if space.conditions:
        content["conditions"] = _texts(map(condition_content, space.conditions))
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _texts(values: Iterable[Any]) -> list[str]:
    return sorted({json.dumps(value) for value in values})
