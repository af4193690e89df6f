"""Whether the simulated server's profile that a study names is there and good."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from search_spaces import Problem, Study, StudyFileError, yaml_nodes
from search_spaces.nearest import nearest


def check_profile(study: Study) -> None:
    """Reads the profile, where the study names one or is for the simulated server.

    Raises:
        StudyFileError: It cannot be used, with the key.
    """
    if study.runner != "simulated" and "simulated" not in study.model_fields_set:
        return
    from runners.simulated_server.profile import PROFILES, load_profile  # noqa: PLC0415 - pydantic

    name = study.simulated.profile
    try:
        load_profile(name)
    except FileNotFoundError:
        known = tuple(sorted(path.stem for path in PROFILES.glob("*.yaml")))
        message = f"There is no profile {name!r}; {nearest(Path(name).name, known)}"
        message += ", or write the path of a file of your own, such as ./my-machine.yaml"
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = f"{name}: {place}: {first['msg']}"
    except (OSError, ValueError) as error:
        message = f"Cannot read the profile: {error}"
    else:
        return
    path: yaml_nodes.Path = ("simulated", "profile")
    line = yaml_nodes.read(study.text).line(path)
    raise StudyFileError(study.source, [Problem(yaml_nodes.dotted(path), line, message)])
