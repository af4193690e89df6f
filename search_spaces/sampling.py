"""Sampling parameters of a workload, by SGLang's names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import PlainValidator

from search_spaces.study_file.values import wrong
from search_spaces.suggestions import nearest


@dataclass(frozen=True, slots=True)
class _Range:
    least: float
    most: float
    above: bool = False
    whole: bool = False
    or_else: float | None = None

    def says(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        upper = f" and at most {self.most:g}" if math.isfinite(self.most) else ""
        other = f", or {self.or_else:g}" if self.or_else is not None else ""
        return f"{kind} {'above' if self.above else 'of at least'} {self.least:g}{upper}{other}"

    def holds(self, value: float) -> bool:
        if self.or_else is not None and value == self.or_else:
            return True
        enough = value > self.least if self.above else value >= self.least
        return enough and value <= self.most


_KNOWN = {
    "top_p": _Range(0, 1, above=True),
    "top_k": _Range(1, 2**31 - 1, whole=True, or_else=-1),
    "min_p": _Range(0, 1),
    "frequency_penalty": _Range(-2, 2),
    "presence_penalty": _Range(-2, 2),
    "repetition_penalty": _Range(0, 2, above=True),
    "sampling_seed": _Range(0, 2**63 - 1, whole=True),
}
"""Ranges as SGLang checks them (`SamplingParams.verify`, 0.5.23); whole numbers have 32 bits."""

_ELSEWHERE = {
    "temperature": "write it as `temperature: 0.7` under `workload`",
    "max_new_tokens": "write `output_tokens` under `workload`",
    "min_new_tokens": "`output_tokens` decides lengths of answers unless `natural_length` is true",
    "ignore_eos": "write `natural_length: true` under `workload` for answers that end themselves",
    "stop": "a study has no stop words; `natural_length: true` ends answers where the model does",
    "n": "a request has one answer",
    "seed": "SGLang calls it `sampling_seed`",
}

SHAPING = ("top_p", "top_k", "min_p", "sampling_seed")
"""Parameters that do nothing where sampling is greedy: SGLang then takes the likeliest token."""


def _parameters(value: object) -> dict[str, float | int]:
    if not isinstance(value, dict):
        raise wrong(f"Must be keys with numbers, such as `{{top_p: 0.95}}`, not {value!r}")
    out: dict[str, float | int] = {}
    for name, number in value.items():
        if name in _ELSEWHERE:
            raise wrong(f"Does not belong here; {_ELSEWHERE[name]}", name)
        if name not in _KNOWN:
            raise wrong(f"Unknown sampling parameter; {nearest(name, tuple(_KNOWN))}", name)
        known = _KNOWN[name]
        kinds = (int,) if known.whole else (int, float)
        is_number = isinstance(number, kinds) and not isinstance(number, bool)
        if not is_number or not math.isfinite(number) or not known.holds(number):
            raise wrong(f"Must be {known.says()}, not {number!r}", name)
        out[name] = number
    return out


SamplingParameters = Annotated[dict[str, float | int], PlainValidator(_parameters)]
"""A workload's sampling beside its temperature."""
