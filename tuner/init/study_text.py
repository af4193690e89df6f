"""Text of a study file: `study.yaml.template` with the values of a proposal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import TYPE_CHECKING

import yaml

from search_spaces.algorithms import canonical_algorithm, family_is_guessed, model_family
from search_spaces.configuration import NO_SPECULATION
from search_spaces.secrets import is_export_only
from search_spaces.study_file.study import Model
from tuner.init.questions import OPEN_REQUESTS

if TYPE_CHECKING:
    from tuner.init.collectives import Choice, Collectives
    from tuner.init.hardware import Hardware
    from tuner.init.questions import Load
    from tuner.init.speculation import Speculations
    from tuner.init.today import Today

WIDTH = 100
"""Maximum line length of comments and of folded commands."""

RUNNING = "max-running-requests"
_LEAST_RUNNING = 64
_LAST_COLUMN = 46
"""Comments beside values share a column, up to this one."""

# Starts unlike a number, and has no character with a meaning in YAML.
_PLAIN = re.compile(r"[A-Za-z_/$][A-Za-z0-9_/.+@$~-]*")
_YAML_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


@dataclass(frozen=True, slots=True)
class Proposal:
    """Everything that a study file is written from.

    Attributes:
        name: Name of the study.
        origin: Source of the study, for the head of the file.
        today: Today's server.
        hardware: GPUs of the server.
        speculations: Speculation sub-spaces.
        collectives: Settings to vary between GPUs.
        load: Workload, objective and budget.
        runner: Registered name of the runner.
    """

    name: str
    origin: str
    today: Today
    hardware: Hardware
    speculations: Speculations
    collectives: Collectives
    load: Load
    runner: str

    @property
    def running(self) -> int | None:
        """Fixed `max-running-requests`; `None` if the study does not fix the flag.

        The limit is twice the workload, and at least the largest CUDA graph batch of today's
        command: SGLang makes no larger graphs than the limit (0.5.23, `memory_hook.py:184`).
        """
        speculates = any(part.algorithm != NO_SPECULATION for part in self.speculations.parts)
        if not speculates or self.today.flags.get(RUNNING) is not None:
            return None
        return max(_LEAST_RUNNING, 2 * self.load.most, *self.today.graph_batches)


def study_text(proposal: Proposal) -> str:
    """Return the text of the study file."""
    template = resources.files("tuner.init") / "study.yaml.template"
    values = {**_server(proposal), **_space(proposal), **_workload(proposal.load)}
    head = f"Made by `tuner init` from {proposal.origin}, for {proposal.hardware.describe()}."
    values |= {
        "head": _lines(comment(head)),
        "study": yaml_text(proposal.name),
        "runner": yaml_text(proposal.runner),
        "profile": None,
    }
    if proposal.runner == "simulated":
        values["profile"] = "llama-8b-h200" if proposal.today.gpus == 1 else "kimi"
    return fill(template.read_text(encoding="utf-8"), values)


def fill(template: str, values: Mapping[str, str | None]) -> str:
    """Replace the `$names` of a template.

    A line whose value is `None` is left out, and so are a section without lines, and comments whose
    next line is left out. Further lines of a value get the indentation of the first.
    """
    out: list[str] = []
    kept = True
    for line in reversed(template.splitlines()):
        text = line.lstrip()
        indent = line.removesuffix(text)
        if names := Template(line).get_identifiers():
            kept = all(values[name] is not None for name in names)
        elif text.endswith(":") and not text.startswith("#"):
            kept = bool(out) and out[-1].startswith(f"{indent} ")
        elif not text:
            kept = bool(out) and out[-1] != ""
        if kept:
            out.append(Template(line).substitute(values).replace("\n", f"\n{indent}"))
    return "\n".join(reversed(out)) + "\n"


def yaml_text(value: object) -> str:
    """Return a value as one line that YAML 1.1 and 1.2 read alike: `{concurrency: 8}`."""
    if isinstance(value, Mapping):
        pairs = (f"{yaml_text(str(key))}: {yaml_text(part)}" for key, part in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(yaml_text, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(int(value) if value == int(value) else value)
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _YAML_WORDS:
        return text
    style = "'" if text.isprintable() and "'" not in text and re.search(r'["\\]', text) else '"'
    return str(
        yaml.safe_dump(text, default_style=style, width=float("inf"), allow_unicode=True)
    ).rstrip("\n")


def comment(text: str, width: int = WIDTH) -> list[str]:
    """Return a text as comment lines; line breaks of the text are kept."""
    return [
        line
        for paragraph in text.splitlines()
        for line in textwrap.wrap(
            paragraph,
            width,
            initial_indent="# ",
            subsequent_indent="# ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def commented(rows: Iterable[tuple[str, str]], indent: int) -> list[str]:
    """Return lines with their comments beside them in a column, or above if a line is too long.

    Args:
        rows: Lines of YAML with their comments (empty without one).
        indent: Indentation that the lines will get.
    """
    rows = tuple(rows)
    lengths = [len(code) for code, why in rows if why and indent + len(code) <= _LAST_COLUMN]
    column = max(lengths, default=0)
    out: list[str] = []
    for code, why in rows:
        line = f"{code.ljust(column)}  # {why}" if why else code
        if why and indent + len(line) > WIDTH:
            lead = " " * (len(code) - len(code.lstrip()))
            out += [lead + part for part in comment(why, WIDTH - indent - len(lead))]
            line = code
        out.append(line)
    return out


def _lines(lines: Iterable[str]) -> str | None:
    return "\n".join(lines) or None


def _optional(value: object) -> str | None:
    return yaml_text(value) if value else None


def _server(proposal: Proposal) -> dict[str, str | None]:
    today = proposal.today
    model = Model(path=today.model, draft=today.draft)
    algorithms = {canonical_algorithm(part.algorithm) for part in proposal.speculations.parts}
    guessed = bool(algorithms & {"EAGLE", "EAGLE3"}) and family_is_guessed(model)
    tuned = {choice.name for choice in proposal.collectives.env}
    env = [(name, value) for name, value in today.env.items() if name not in tuned]
    secrets, renamed = [], None
    if today.inherited:
        where = "set them on the server's side" if today.prefix else "export them in your shell"
        secrets = comment(f"Secrets are not written; {where}: {', '.join(today.inherited)}")
    if today.command is not None and today.renamed:
        renamed = f"# Renamed flags have their names of SGLang {today.version}."
    return {
        "model": yaml_text(today.model),
        "draft": _optional(today.draft),
        "family": model_family(model) if guessed else None,
        "fixed_flags": _lines(commented(_fixed_flags(proposal), 4)),
        "running": _optional(proposal.running),
        "fixed_env": _lines(f"{yaml_text(name)}: {yaml_text(value)}" for name, value in env),
        "secrets": _lines(secrets),
        "python": _optional(today.python),
        "prefix": _optional(today.prefix),
        "renamed": renamed,
        "command": None if today.command is None else _folded(today.command),
    }


def _fixed_flags(proposal: Proposal) -> list[tuple[str, str]]:
    today, pinned = proposal.today, dict(proposal.collectives.pinned)
    tuned = {choice.name for choice in proposal.collectives.flags}
    rows = []
    for name, value in today.flags.items():
        if value is None or value is False or name in tuned:
            continue
        _, why = pinned.pop(name, (None, ""))
        if is_export_only(name):
            why = "only for exported commands"
        if (old := today.renamed.get(name)) is not None:
            why = f"today's --{old}, renamed in SGLang {today.version}"
        rows.append((f"{yaml_text(name)}: {yaml_text(value)}", why))
    rows += [(f"{name}: {yaml_text(value)}", why) for name, (value, why) in pinned.items()]
    return rows


def _folded(text: str) -> str:
    """Return a command as a folded block, or quoted if folding would change the command."""
    if not text or not text.isprintable() or "  " in text or text != text.strip():
        return yaml_text(text)
    lines: list[str] = []
    # A flag and its values share a line if they fit.
    for part in re.split(r" (?=--)", text):
        if lines and len(lines[-1]) + 5 + len(part) <= WIDTH:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return "\n  ".join((">-", *lines))


def _space(proposal: Proposal) -> dict[str, str | None]:
    collectives = proposal.collectives
    parts: list[str] = []
    for part in proposal.speculations.parts:
        keys = {"algorithm": part.algorithm, **part.keys}
        rows = [
            (f"{'  ' if n else '- '}{key}: {yaml_text(value)}", part.comments.get(key, ""))
            for n, (key, value) in enumerate(keys.items())
        ]
        parts += commented(rows, 4)
    for remark in proposal.speculations.remarks:
        parts += comment(remark, WIDTH - 4)
    conditions: list[str] = []
    for when, then, why in collectives.conditions:
        conditions += comment(why, WIDTH - 4)
        conditions += [f"- when: {yaml_text(when)}", f"  then: {yaml_text(then)}"]
    return {
        "speculation": _lines(parts),
        "remark": _lines(comment(collectives.remark, WIDTH - 2)),
        "tuned_flags": _choices(collectives.flags),
        "tuned_env": _choices(collectives.env),
        "conditions": _lines(conditions),
    }


def _choices(choices: Iterable[Choice]) -> str | None:
    lines: list[str] = []
    for choice in choices:
        lines += [*comment(choice.why, WIDTH - 4), f"{choice.name}:"]
        lines += commented([(f"  - {yaml_text(value)}", why) for value, why in choice.values], 4)
    return _lines(lines)


def _workload(load: Load) -> dict[str, str | None]:
    points: list[dict[str, object]] = [{"concurrency": c} for c in load.concurrencies]
    points += [{"request_rate": rate, "requests": OPEN_REQUESTS} for rate in load.rates]
    many = "# Every configuration is measured at every point. The score is the geometric mean."
    objective: dict[str, object] = {"maximize": "output_tok_s"}
    why = None
    if load.goodput:
        objective = {"maximize": "goodput_request_s"}
    elif load.rates:
        objective = {"minimize": "e2e_p95_ms"}
        why = "# With a request rate, tok/s depends on the arrivals, not on the settings."
    if load.ttft_ms is not None:
        objective["subject_to"] = {"ttft_p95_ms": load.ttft_ms}
    hours = {} if load.hours is None else {"hours": load.hours}
    return {
        "prompts": yaml_text(load.prompts),
        "output_tokens": yaml_text(load.output_tokens),
        "points_comment": many if len(points) > 1 else None,
        "points": yaml_text(points),
        "goodput": _optional(load.goodput),
        "objective_comment": why,
        "objective": yaml_text(objective),
        "budget": yaml_text({"launches": load.launches, **hours}),
    }
