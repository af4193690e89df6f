"""Export as Kubernetes manifests: a Deployment, its Service, and a claim for the model cache.

The kubelet expands `$(NAME)` in commands and variables and reads `$$` as `$`, so each `$` is
doubled.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tuner.exports import container
from tuner.exports.exported import Secret
from tuner.exports.yaml_text import comments, dumped

if TYPE_CHECKING:
    from tuner.exports.exported import Exported, Word

EXECUTABLE = False

_PROBE_S = 10
_SHM = "/dev/shm"  # noqa: S108 - where processes share memory, no file of ours


def write(exported: Exported) -> str:
    """See `tuner.exports.Format`."""
    head = [*exported.remarks, *exported.changes]
    head += [f"NOTE: {note}" for note in container.notes(exported)]
    head += _to_fill_in(exported)
    head.append("Apply it with: kubectl apply --filename FILE")
    documents = [_deployment(exported), _service(exported)]
    if _needs_cache(exported):
        documents.insert(0, _claim(exported))
    return comments(head) + "---\n".join(dumped(document) for document in documents)


def _to_fill_in(exported: Exported) -> list[str]:
    lines = []
    if exported.secrets:
        literals = " ".join(f"--from-literal={name}=..." for name in exported.secrets)
        lines.append(f"First run: kubectl create secret generic {_secret(exported)} {literals}")
    if _needs_cache(exported):
        lines.append("Set the size and storage class of the claim; it stores the model weights.")
    if exported.local_paths:
        paths = ", ".join(exported.local_paths)
        lines.append(f"The node must have the model: {paths} (hostPath)")
    machine = exported.facts.get("machine")
    if machine and machine["gpus"]:
        lines.append(f"Select nodes (nodeSelector) with the measured GPU: {machine['gpus'][0]}")
    return lines


def _plain(text: str) -> str:
    return text.replace("$", "$$")


def _word(word: Word) -> str:
    return f"$({word.name})" if isinstance(word, Secret) else _plain(word)


def _secret(exported: Exported) -> str:
    return f"{exported.name}-secrets"


def _needs_cache(exported: Exported) -> bool:
    model = str(dict(exported.flags)["model-path"])
    draft = dict(exported.flags).get("speculative-draft-model-path")
    return any(path not in exported.local_paths for path in (model, draft) if path is not None)


def _environment(exported: Exported) -> list[dict[str, Any]]:
    """Variables, secrets first: Kubernetes expands a variable only in later variables."""
    given = dict(exported.container_env)
    entries: list[tuple[str, Word]] = [
        (name, Secret(name)) for name in container.secret_variables(exported) if name not in given
    ]
    entries += given.items()
    return [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": _secret(exported), "key": word.name}}}
        if isinstance(word, Secret)
        else {"name": name, "value": _plain(word)}
        for name, word in entries
    ]


def _metadata(exported: Exported, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "labels": {"app.kubernetes.io/name": "sglang", "app.kubernetes.io/instance": exported.name},
        "annotations": {
            "study": exported.study,
            "trial": str(exported.trial),
            "simulated": "true" if exported.simulated else "false",
        },
    }


def _probe(exported: Exported, **times: int) -> dict[str, Any]:
    # SGLang answers after it has generated a token, or after 20 s (0.5.23).
    get = {"path": "/health", "port": "http", "scheme": exported.scheme.upper()}
    return {"httpGet": get, "timeoutSeconds": 30, **times}


def _container(exported: Exported) -> dict[str, Any]:
    env = _environment(exported)
    starts = math.ceil(exported.start_s / _PROBE_S)
    out: dict[str, Any] = {
        "name": "sglang",
        "image": exported.image,
        "command": [_plain(word) for word in exported.container_start],
        "args": [word for line in container.words(exported, _word) for word in line],
    }
    if env:
        out["env"] = env
    out |= {
        "ports": [{"name": "http", "containerPort": exported.port}],
        "startupProbe": _probe(exported, periodSeconds=_PROBE_S, failureThreshold=starts),
        "readinessProbe": _probe(exported, periodSeconds=30, failureThreshold=2),
        "livenessProbe": _probe(exported, periodSeconds=30, failureThreshold=6),
    }
    if exported.gpus:
        out["resources"] = {"limits": {"nvidia.com/gpu": exported.gpus}}
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": _SHM}]
    if _needs_cache(exported):
        mounts.append({"name": "model-cache", "mountPath": exported.cache})
    for number, path in enumerate(exported.local_paths):
        mounts.append({"name": f"model-{number}", "mountPath": path, "readOnly": True})
    out["volumeMounts"] = mounts
    return out


def _deployment(exported: Exported) -> dict[str, Any]:
    # NCCL's buffers between processes live in shared memory; the default of 64 MiB is too small.
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    if _needs_cache(exported):
        claim = {"claimName": f"{exported.name}-models"}
        volumes.append({"name": "model-cache", "persistentVolumeClaim": claim})
    for number, path in enumerate(exported.local_paths):
        volumes.append({"name": f"model-{number}", "hostPath": {"path": path, "type": "Directory"}})
    labels = _metadata(exported, exported.name)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": labels,
        "spec": {
            "replicas": 1,
            # A new server needs the GPUs of the old one.
            "strategy": {"type": "Recreate"},
            "progressDeadlineSeconds": exported.start_s + 600,
            "selector": {"matchLabels": labels["labels"]},
            "template": {
                "metadata": {"labels": labels["labels"], "annotations": labels["annotations"]},
                "spec": {
                    "terminationGracePeriodSeconds": 60,
                    # Else every service becomes a variable that may begin with SGLANG_.
                    "enableServiceLinks": False,
                    "containers": [_container(exported)],
                    "volumes": volumes,
                },
            },
        },
    }


def _service(exported: Exported) -> dict[str, Any]:
    metadata = _metadata(exported, exported.name)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "selector": metadata["labels"],
            "ports": [{"name": "http", "port": exported.port, "targetPort": "http"}],
        },
    }


def _claim(exported: Exported) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _metadata(exported, f"{exported.name}-models"),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Ti"}},
        },
    }
