from __future__ import annotations

import importlib
import subprocess
import sys
import types

import pytest

import search_spaces


def test_the_public_names():
    assert search_spaces.__all__ == [
        "Configuration",
        "NotInSpaceError",
        "OperatingPoint",
        "Parameter",
        "Problem",
        "Setting",
        "Space",
        "SpaceTooLargeError",
        "Speculation",
        "Study",
        "StudyFileError",
        "Value",
        "Violation",
        "Workload",
        "baselines",
        "broken_conditions",
        "canonical",
        "load_study",
        "parse_study",
        "shipped",
        "violations",
        "warnings",
    ]
    assert dir(search_spaces) == search_spaces.__all__


@pytest.mark.parametrize("name", search_spaces.__all__)
def test_every_public_name_is_there_and_no_module(name):
    for module in ("advice", "space", "study"):
        importlib.import_module(f"search_spaces.{module}")
    assert not isinstance(getattr(search_spaces, name), types.ModuleType)


def test_no_other_name_is():
    with pytest.raises(AttributeError, match="nothing"):
        search_spaces.nothing  # noqa: B018


def test_a_configuration_costs_no_pydantic_and_no_yaml():
    code = (
        "import sys; from search_spaces import Configuration, Workload; "
        "assert not {'pydantic', 'yaml'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
