"""What is refused before a server is started, and of one that is not what was launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.records import Failure
from runners.base import RunnerError
from runners.sglang.command import tp_size

if TYPE_CHECKING:
    from results.records import Fault, LaunchIntent, Resolved
    from runners.base import Runner
    from search_spaces.study_file.study import Study


def check_intent(runner: Runner, study: Study, intent: LaunchIntent) -> None:
    """Sees that a runner can do what is asked of it.

    Raises:
        RunnerError: It cannot place the draft so, or switch a server through these settings.
    """
    draft_tp = intent.configuration.draft_tp
    # Today's command may have another tp-size than the study, and a space may vary it.
    own = tp_size(study, intent.configuration)
    if draft_tp not in {None, own}:
        message = (
            f"draft_tp {draft_tp} was asked for, but this runner can place the draft only at "
            f"the target's tp-size {own}"
        )
        raise refusal("unsupported_draft_tp", "configuration", message)
    for setting in intent.settings:
        if setting == intent.configuration.setting:
            continue
        other = intent.configuration.with_setting(setting)
        if not runner.can_switch(intent.configuration, other):
            message = f"this runner cannot switch a running server to {setting}"
            raise refusal("cannot_switch", "client", message)


def check_kind(runner: Runner, resolved: Resolved) -> None:
    """Sees that a server is a simulated one where that was started, and a real one else.

    Raises:
        RunnerError: It is not.
    """
    if resolved.simulated != runner.simulated:
        wrong = "a simulated" if resolved.simulated else "a real"
        message = f"the {runner.name} runner started {wrong} server: check `server.python`"
        raise refusal("wrong_server", "study", message, phase="ready")


def refusal(kind: str, fault: Fault, message: str, phase: str = "arguments") -> RunnerError:
    """The error of a launch that does not take place."""
    return RunnerError(Failure(kind, phase, fault, message))
