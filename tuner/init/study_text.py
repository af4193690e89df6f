"""Text of the study file with its comments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from search_spaces.algorithms import canonical_algorithm
from search_spaces.configuration import NO_SPECULATION
from search_spaces.rules.defaults import family_is_guessed, model_family
from search_spaces.secrets import is_export_only
from search_spaces.study_file.study import Model
from tuner.init.commented_yaml import Block, Choices, Entry, Folded, Items, Remark, render
from tuner.init.load import OPEN_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuner.init.collectives import Choice, Collectives
    from tuner.init.hardware import Hardware
    from tuner.init.load import Load
    from tuner.init.speculation import Speculations, SubSpace
    from tuner.init.today import Today

RUNNING = "max-running-requests"
_LEAST_RUNNING = 64


@dataclass(frozen=True, slots=True)
class Proposal:
    """Content of a study file.

    Attributes:
        name: Name of the study.
        origin: Origin of the study, for the head of the file.
        today: The server.
        hardware: Its GPUs.
        speculations: Sub-spaces of speculation.
        collectives: Settings of all-reduce.
        load: Workload, objective and budget.
        runner: `"sglang"` or `"simulated"`.
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
    def speculates(self) -> bool:
        """Whether the study searches any algorithm."""
        return any(part.algorithm != NO_SPECULATION for part in self.speculations.parts)

    @property
    def running(self) -> int | None:
        """Value of `max-running-requests`; `None` if no limit is needed.

        Twice the requests of the workload, and at least the batches for which today's command
        captures CUDA graphs. SGLang captures no graphs above this limit (0.5.23,
        `memory_hook.py:184`).
        """
        if not self.speculates or self.today.flags.get(RUNNING) is not None:
            return None
        return max(_LEAST_RUNNING, 2 * self.load.most, *self.today.graph_batches)


def study_text(proposal: Proposal) -> str:
    """Return the text of the file."""
    load = proposal.load
    hours = {} if load.hours is None else {"hours": _plain(load.hours)}
    entries: list[Entry | Remark] = [
        Remark(
            f"Made by `tuner init` from {proposal.origin}, for {proposal.hardware.describe()}.\n"
            "Change what you like: docs/study-files.md has every key, and `tuner validate` checks "
            "it."
        ),
        Entry("study", proposal.name),
        Entry("model", _model(proposal)),
        Entry("server", _server(proposal), above="In every launch, baselines included."),
    ]
    if proposal.today.command is not None:
        command = Entry("command", Folded(proposal.today.command))
        said = "Today's command: the third baseline, measured as it is."
        if proposal.today.renamed:
            version = proposal.today.version
            said += f" (Flags have their names of SGLang {version}, which has no others.)"
        entries.append(
            Entry(
                "production",
                Block((command,)),
                above=said,
            )
        )
    entries += [
        Entry("space", _space(proposal)),
        Entry("workload", _workload(load)),
        Entry("objective", _objective(load), above=_why_objective(load)),
        Entry("budget", {"launches": load.launches, **hours}, beside="baselines included"),
        Entry("runner", proposal.runner),
    ]
    if proposal.runner == "simulated":
        profile = "llama-8b-h200" if proposal.today.gpus == 1 else "kimi"
        entries.append(
            Entry(
                "simulated",
                {"profile": profile, "time_scale": 10},
                above="A simulated machine, not yours: good to try the tuner, not for an answer.",
            )
        )
    return render(Block(entries))


def _model(proposal: Proposal) -> Block:
    today = proposal.today
    entries = [Entry("path", today.model)]
    if today.draft is not None:
        entries.append(Entry("draft", today.draft))
    model = Model(path=today.model, draft=today.draft)
    algorithms = {canonical_algorithm(part.algorithm) for part in proposal.speculations.parts}
    if algorithms & {"EAGLE", "EAGLE3"} and family_is_guessed(model):
        entries.append(
            Entry(
                "family",
                model_family(model),
                above="Guessed from the name, and decides SGLang's default draft (0.5.23): 5 "
                "steps, topk 4, 8 tokens for llama (Llama and Grok-1), 3/1/4 for other.",
            )
        )
    return Block(entries)


def _server(proposal: Proposal) -> Block:
    today, collectives = proposal.today, proposal.collectives
    tuned_flags = {choice.name for choice in collectives.flags}
    tuned_env = {choice.name for choice in collectives.env}
    flags: list[Entry | Remark] = []
    exported = False
    for name, value in today.flags.items():
        if value is None or value is False or name in tuned_flags:
            continue
        above = ""
        if is_export_only(name) and not exported:
            above = "For the exported command: servers of trials listen on ports of their own."
            exported = True
        _, why = collectives.pinned.get(name, (None, ""))
        if (old := today.renamed.get(name)) is not None:
            why = f"today's --{old}, by its name in SGLang {today.version}"
        flags.append(Entry(name, list(value) if isinstance(value, tuple) else value, above, why))
    for name, (pinned, why) in collectives.pinned.items():
        if not today.flags.get(name):
            flags.append(Entry(name, pinned, beside=why))
    flags += _running(proposal)
    env: list[Entry | Remark] = [
        Entry(name, value) for name, value in today.env.items() if name not in tuned_env
    ]
    if today.inherited:
        names = ", ".join(today.inherited)
        where = "the server's side must have it" if today.prefix else "export it in your shell"
        env.append(Remark(f"{names}: secret, so not written here; {where}"))
    entries = [Entry("flags", Block(flags)), Entry("env", Block(env))]
    if today.python is not None:
        entries.append(Entry("python", today.python))
    if today.prefix:
        entries.append(Entry("prefix", list(today.prefix)))
    return Block(entries)


def _running(proposal: Proposal) -> Iterator[Entry]:
    if proposal.running is None:
        return
    above = (
        "Held, so that all run alike: unset, SGLang caps it at 48 with speculation and not without "
        "(0.5.23). Raise it if you serve more at a time."
    )
    yield Entry(RUNNING, proposal.running, above=above)


def _space(proposal: Proposal) -> Block:
    speculations, collectives = proposal.speculations, proposal.collectives
    parts: list[Block | Remark] = [_sub_space(part) for part in speculations.parts]
    parts += [Remark(text) for text in speculations.remarks]
    entries: list[Entry | Remark] = [Entry("speculation", Items(parts))]
    if collectives.remark:
        entries.append(Remark(f"{collectives.remark[0].upper()}{collectives.remark[1:]}."))
    if collectives.flags:
        entries.append(Entry("flags", Block([_choice(choice) for choice in collectives.flags])))
    if collectives.env:
        entries.append(Entry("env", Block([_choice(choice) for choice in collectives.env])))
    if collectives.conditions:
        conditions = [
            Block((Entry("when", when, above=why), Entry("then", then)))
            for when, then, why in collectives.conditions
        ]
        entries.append(Entry("conditions", Items(conditions)))
    return Block(entries)


def _choice(choice: Choice) -> Entry:
    return Entry(choice.name, Choices(choice.values), above=choice.why)


def _sub_space(part: SubSpace) -> Block:
    entries = [Entry("algorithm", part.algorithm, beside=part.why)]
    if part.steps is not None:
        first, last = part.steps
        steps = first if first == last else {"from": first, "to": last}
        entries.append(Entry("num_steps", steps, beside=part.why_steps))
    if part.topk:
        topk = part.topk[0] if len(part.topk) == 1 else part.topk
        entries.append(Entry("topk", topk, beside=part.why_topk))
    if part.tokens:
        tokens = part.tokens[0] if len(part.tokens) == 1 else part.tokens
        entries.append(Entry("num_draft_tokens", tokens, beside=part.why_tokens))
    if part.flags:
        flags = [Entry(name, [value]) for name, value in part.flags.items()]
        entries.append(Entry("flags", Block(flags)))
    return Block(entries)


def _workload(load: Load) -> Block:
    points: list[dict[str, object]] = [{"concurrency": c} for c in load.concurrencies]
    points += [{"request_rate": _plain(r), "requests": OPEN_REQUESTS} for r in load.rates]
    many = "each configuration is measured at each; gains are averaged (geometric mean)"
    entries = [
        Entry(
            "prompts",
            {name: _plain(share) for name, share in load.prompts.items()},
            beside="the best settings depend on them: put yours here",
        ),
        Entry(
            "output_tokens",
            load.output_tokens,
            beside="mean; lengths of answers differ by up to half of it",
        ),
        Entry("points", points, beside=many if len(points) > 1 else ""),
    ]
    if load.goodput:
        limits = {name: _plain(value) for name, value in load.goodput.items()}
        entries.append(Entry("goodput", limits, beside="what makes an answer good"))
    return Block(entries)


def _objective(load: Load) -> dict[str, object]:
    if load.goodput:
        what: dict[str, object] = {"maximize": "goodput_request_s"}
    elif load.rates:
        what = {"minimize": "e2e_p95_ms"}
    else:
        what = {"maximize": "output_tok_s"}
    if load.ttft_ms is not None:
        what["subject_to"] = {"ttft_p95_ms": _plain(load.ttft_ms)}
    return what


def _why_objective(load: Load) -> str:
    if load.rates and not load.goodput:
        return "With a rate of requests tok/s is what arrives, whatever the settings."
    return ""


def _plain(number: float) -> float | int:
    """Write a whole number without `.0`."""
    return int(number) if float(number).is_integer() else number
