"""Select a service of a file that starts SGLang in several."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from search_spaces.launch_commands.manifests import UnreadableFileError

if TYPE_CHECKING:
    from search_spaces.launch_commands.words import Found


def of_service(found: list[Found], service: str | None) -> list[Found]:
    """Launches of the given service, or of the first one.

    Raises:
        UnreadableFileError: No service of this name starts SGLang.
    """
    names = list(dict.fromkeys(each.service for each in found if each.service))
    if service is not None and service not in names:
        known = f"; those that start SGLang are {', '.join(names)}" if names else ""
        raise UnreadableFileError(f"There is no service {service} in it{known}")
    if len(names) < 2 and service is None:
        return found
    wanted = service if service is not None else found[0].service
    mine = [each for each in found if each.service == wanted]
    others = [name for name in names if name != wanted]
    if service is None:
        note = (
            f"The file starts SGLang in {', '.join(names)}; this is {wanted}. For another one: "
            f"`--service {others[0]}`"
        )
        mine[0] = replace(mine[0], notes=(note, *mine[0].notes))
    return mine
