"""Export for `docker compose` (the Compose Specification).

Compose expands `$` in values, so each `$` is doubled.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tuner.exports import container
from tuner.exports.exported import LOOPBACK, Secret
from tuner.exports.yaml_text import comments, dumped, quoted

if TYPE_CHECKING:
    from tuner.exports.exported import Exported, Word

EXECUTABLE = False


def write(exported: Exported) -> str:
    """See `tuner.exports.Format`."""
    head = [*exported.remarks, *exported.changes]
    head += [f"NOTE: {note}" for note in container.notes(exported)]
    if exported.host in LOOPBACK:
        head.append("NOTE: The port is published on 127.0.0.1 only; remove host_ip to open it.")
    head.append("Start it with: docker compose --file FILE up --detach")
    if exported.secrets:
        head.append(
            f"Set these variables, or write them to a file .env beside this file: "
            f"{', '.join(exported.secrets)}"
        )
    parts = [
        comments(head),
        f"name: {quoted(exported.name)}\n",
        "services:\n",
        "  sglang:\n",
        f"    image: {quoted(_plain(exported.image))}\n",
        _list("entrypoint", [[_plain(word) for word in exported.container_start]]),
        _list("command", container.words(exported, _value)),
        _environment(exported),
        _body(exported),
    ]
    return "".join(parts)


def _list(key: str, lines: list[list[str]]) -> str:
    """A list of words in flow style, one flag with its values per line."""
    rows = "".join(f"      {', '.join(map(quoted, line))},\n" for line in lines)
    return f"    {key}: [\n{rows}    ]\n"


def _plain(text: str) -> str:
    return text.replace("$", "$$")


def _value(word: Word) -> str:
    return f"${{{word.name}:?set it}}" if isinstance(word, Secret) else _plain(word)


def _environment(exported: Exported) -> str:
    env = {name: _value(value) for name, value in exported.container_env}
    return dumped({"environment": env}, indent=4) if env else ""


def _body(exported: Exported) -> str:
    published: dict[str, Any] = {"target": exported.port, "published": str(exported.port)}
    if exported.host in LOOPBACK:
        # The study's address: reachable from this machine only.
        published["host_ip"] = "127.0.0.1"
    body: dict[str, Any] = {
        "ports": [published],
        "volumes": _volumes(exported),
        # NCCL's rings between processes live in shared memory, and pin it.
        "ipc": "host",
        "ulimits": {"memlock": -1, "stack": 67108864},
        "restart": "unless-stopped",
        "stop_grace_period": "60s",
    }
    text = dumped(body, indent=4)
    text += comments([f"A start may take {exported.start_s} s: {exported.start_reason}."], indent=4)
    text += dumped({"healthcheck": _healthcheck(exported)}, indent=4)
    if exported.gpus:
        text += dumped({"deploy": {"resources": _resources(exported)}}, indent=4)
    return text


def _volumes(exported: Exported) -> list[dict[str, Any]]:
    cache = "${HF_HOME:-${HOME}/.cache/huggingface}"
    volumes: list[dict[str, Any]] = [
        {"type": "bind", "source": cache, "target": _plain(exported.cache)}
    ]
    volumes += (
        {"type": "bind", "source": _plain(path), "target": _plain(path), "read_only": True}
        for path in exported.local_paths
    )
    return volumes


def _healthcheck(exported: Exported) -> dict[str, Any]:
    # The image has Python, but perhaps no curl. SGLang answers after it has generated a token.
    check = "import ssl, urllib.request as u; "
    check += f"u.urlopen({json.dumps(f'{exported.scheme}://127.0.0.1:{exported.port}/health')}, "
    check += "timeout=30, context=ssl._create_unverified_context())"
    return {
        "test": ["CMD", "python3", "-c", check],
        "interval": "30s",
        "timeout": "40s",
        "retries": 3,
        "start_period": f"{exported.start_s}s",
    }


def _resources(exported: Exported) -> dict[str, Any]:
    chosen = dict(exported.env).get("CUDA_VISIBLE_DEVICES")
    device: dict[str, Any] = {"driver": "nvidia", "capabilities": ["gpu"]}
    if isinstance(chosen, str) and chosen:
        device["device_ids"] = [number.strip() for number in chosen.split(",")]
    else:
        device["count"] = exported.gpus
    return {"reservations": {"devices": [device]}}
