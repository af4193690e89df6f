"""The documents hold what they promise."""

from __future__ import annotations

import json
import re
from inspect import signature
from pathlib import Path

import jsonschema
import pytest

from search_spaces.study_file.load import load_study
from tuner.cli.bench import bench
from tuner.commands.dry_run import switch_plan
from tuner.studies import assembly

ROOT = Path(__file__).parents[1]
SCHEMAS = ROOT / "docs" / "schemas"


@pytest.mark.parametrize("name", ["report", "export", "validate", "explain"])
def test_the_examples_match_their_schemas(name):
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads((SCHEMAS / "examples" / f"{name}.json").read_text()), schema)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("report", {"verdict": {"kind": "certain", "reason": "?"}}),
        ("report", {"trials": [{}]}),
        ("export", {"argv": "python"}),
        ("validate", {"ok": "yes"}),
        ("explain", {"shares": {"draft": 0.5, "verify": 0.5}}),
        ("explain", {"bounds": {"draft_tp": -0.1}}),
        ("explain", {"points": []}),
    ],
)
def test_the_schemas_refuse_what_is_wrong(name, change):
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    example = json.loads((SCHEMAS / "examples" / f"{name}.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**example, **change}, schema)


def test_every_option_of_bench_is_explained():
    rows = re.findall(r"^\| (`--.+?) \|", (ROOT / "docs" / "bench.md").read_text(), re.MULTILINE)
    explained = [option for row in rows for option in re.findall(r"--[a-z-]+", row)]
    names = [name.removeprefix("as_").replace("_", "-") for name in signature(bench).parameters]
    assert explained == [f"--{name}" for name in names]


def test_the_readme_counts_the_launches_of_the_demo():
    study = load_study("kimi-demo")
    servers = assembly.make_servers("simulated", study, seed=0)
    problem = assembly.build_problem(study, servers, hot_switch=True)
    configurations, launches = len(problem.space), switch_plan(problem).needed.launches
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert re.findall(r"(\d+) configurations in (\d+) launches", readme) == [
        (str(configurations), str(launches))
    ]
    picture = (ROOT / "docs" / "pictures" / "demo.svg").read_text().replace("&#160;", " ")
    assert f"{launches} of {study.budget.launches} launches used" in picture
    assert "hot switch: " in picture


def test_the_readme_shows_studies_and_pictures_that_exist():
    readme = (ROOT / "README.md").read_text()
    assert (ROOT / "docs" / "pictures" / "demo.svg").read_text().startswith("<svg")
    assert "docs/pictures/demo.svg" in readme
    from search_spaces.study_file.load import parse_study

    block = readme.split("```yaml\n")[1].split("```")[0]
    lines = block.splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    parse_study("\n".join(line[indent:] for line in lines), "README.md")
