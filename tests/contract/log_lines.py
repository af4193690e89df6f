"""Log lines without the parts that differ between starts and machines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from runners.sglang.server_log import phase_begun

if TYPE_CHECKING:
    from collections.abc import Iterator

# Lines of a CPU or of this machine only, and lines of requests.
_ELSEWHERE = re.compile(
    r"init_threads_binding|init_cpu_threads_env|CUDA architecture|RLIMIT|OpenAI Responses API"
    r"|Ignore import error|GET /|POST /|Prefill batch|Decode batch|server_args=|numba|ngram_cache"
    r"|SIMULATED"
)
_BATCH = re.compile(r"\] (Prefill|Decode) batch, ")
_SERVES = ("Uvicorn running", "Application startup complete")


def start_words(text: str) -> list[str]:
    """Return the lines of a start-up with numbers and names replaced."""
    found = []
    for line in text.splitlines():
        if not line.startswith("[") or _ELSEWHERE.search(line):
            continue
        found.append(_words(line))
        if any(words in line for words in _SERVES):
            break
    return found


def batch_words(text: str) -> set[str]:
    """Return the lines of batches with numbers replaced."""
    return {_words(line) for line in text.splitlines() if _BATCH.search(line)}


def phases(text: str) -> list[str]:
    """Return the phases of a start-up that the runner reads, in order."""
    found: list[str] = []
    for line in text.splitlines():
        phase = phase_begun(line)
        if phase is not None and (not found or found[-1] != phase):
            found.append(phase)
    return found


def compare(real: str, simulated: str) -> Iterator[str]:
    """Describe the differences of two logs of equal requests."""
    theirs, ours = start_words(real), start_words(simulated)
    for line in theirs:
        if line not in ours:
            yield f"log: never says {line!r}"
    for line in ours:
        if line not in theirs:
            yield f"log: says {line!r}, which the real one does not"
    both = [[line for line in lines if line in theirs and line in ours] for lines in (theirs, ours)]
    if both[0] != both[1]:
        yield f"log: in the order {both[1]}, not {both[0]}"
    if phases(real) != phases(simulated):
        yield f"log: phases {phases(simulated)}, not {phases(real)}"
    if batch_words(real) != batch_words(simulated):
        yield f"log: batches {batch_words(simulated)}, not {batch_words(real)}"


def _words(line: str) -> str:
    words = re.sub(r"^\[[^\]]*\] ", "", line)
    words = re.sub(r"torch\.\w+", "DTYPE", words)
    words = re.sub(r"type=\w+", "type=MODEL", words)
    return re.sub(r"-?\d+(\.\d+)*", "#", words)
