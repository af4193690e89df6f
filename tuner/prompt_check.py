"""Whether a study's windows find enough prompts: known before any server is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runners.load import BuiltInPrompts, NotEnoughPromptsError
from search_spaces import Problem, StudyFileError, yaml_nodes

if TYPE_CHECKING:
    from search_spaces import Study


def check_prompts(study: Study) -> None:
    """Each prompt is sent once per window, warm-up included.

    Raises:
        StudyFileError: There are not enough of them, with the operating point that needs them.
    """
    workload = study.workload.to_workload()
    problems = []
    for number, point in enumerate(workload.points):
        count = workload.requests_at(point) + workload.warmup_at(point)
        try:
            BuiltInPrompts(workload.prompts).select(count, 0)
        except NotEnoughPromptsError as error:
            line = yaml_nodes.read(study.text).line(("workload", "points", number))
            problems.append(Problem(f"workload.points[{number}]", line, str(error)))
    if problems:
        raise StudyFileError(study.source, problems)
