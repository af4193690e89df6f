from __future__ import annotations

import subprocess
import sys

import results

LIGHT = """
import sys
import results
assert results.StudyBusy and results.Trial and results.NewStudy
heavy = {"sqlalchemy", "optuna", "alembic", "orjson", "psutil"} & set(sys.modules)
assert not heavy, heavy
"""


def test_every_public_name_is_there_and_nothing_else():
    assert len(set(results.__all__)) == len(results.__all__)
    for name in results.__all__:
        assert getattr(results, name) is not None
    lazy = set(results._LAZY)
    eager = {name for name in vars(results) if name[0].isupper() and name != "TYPE_CHECKING"}
    assert eager | lazy == set(results.__all__)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(results, "Nothing")


def test_the_package_loads_nothing_heavy():
    subprocess.run([sys.executable, "-c", LIGHT], check=True)
