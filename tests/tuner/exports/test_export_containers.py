"""Exported Compose files and Kubernetes manifests, read by Docker's and Kubernetes' own rules."""

from __future__ import annotations

import json
import re
import subprocess

import kubernetes_validate
import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from tuner.errors import CommandError
from tuner.exports import compose_file, kubernetes
from tuner.exports.exported import Secret

from ...examples import examples
from .exported_servers import (
    SECRETS,
    TOOLS,
    caller_environment,
    environments,
    exported,
    flag_sets,
    removed,
    resolved,
    words_of,
)

pytestmark = pytest.mark.slow

ALL = "0.0.0.0"


def composed(text, **env):
    """The service as `docker compose` understands it."""
    done = subprocess.run(
        [TOOLS / "docker-compose", "--file", "-", "config", "--format", "json"],
        input=text,
        env=caller_environment(**env),
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["services"]["sglang"]


def started(service):
    # `config` doubles every `$` again, so that its own output is a Compose file.
    return [word.replace("$$", "$") for word in (*service["entrypoint"], *service["command"])]


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(flag_sets, environments, removed)
def test_compose_starts_exactly_that(flags, env, unset):
    server = exported(flags, env, unset, secrets=True)
    service = composed(compose_file.write(server), **SECRETS)
    prefix = ["env", *(word for name in sorted(unset) for word in ("-u", name))] if unset else []
    assert started(service) == prefix + resolved(words_of(server, host=ALL))
    got = {name: value.replace("$$", "$") for name, value in service["environment"].items()}
    assert got == {**env, "HF_TOKEN": SECRETS["HF_TOKEN"]}


def test_compose_asks_for_what_is_secret():
    text = compose_file.write(exported(secrets=True))
    done = subprocess.run(
        [TOOLS / "docker-compose", "--file", "-", "config"],
        input=text,
        env=caller_environment(HF_TOKEN="x"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "SGLANG_API_KEY" in done.stderr


def test_what_a_container_needs_in_compose():
    service = composed(compose_file.write(exported(local_paths=("/models/a",), start_s=930)))
    assert service["image"] == "lmsysorg/sglang:v0.5.23"
    devices = service["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "capabilities": ["gpu"], "count": 8}]
    assert service["ipc"] == "host"
    assert service["ports"][0] | {"mode": None} == {
        "mode": None,
        "target": 30000,
        "published": "30000",
        "protocol": "tcp",
        "host_ip": "127.0.0.1",
    }
    sources = {v["target"]: (v["source"], v.get("read_only")) for v in service["volumes"]}
    assert sources == {
        "/root/.cache/huggingface": ("/nowhere/.cache/huggingface", None),
        "/models/a": ("/models/a", True),
    }
    assert service["healthcheck"]["start_period"] == "15m30s"


def test_compose_without_a_gpu_and_on_all_addresses():
    server = exported(gpus=0, address={"host": ALL, "port": 8000})
    service = composed(compose_file.write(server))
    assert "deploy" not in service
    assert "host_ip" not in service["ports"][0]
    assert service["ports"][0]["target"] == 8000


def test_chosen_gpus_are_chosen_for_the_container():
    server = exported(env={"CUDA_VISIBLE_DEVICES": "4,5", "A": "b"})
    text = compose_file.write(server)
    service = composed(text)
    assert service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] == ["4", "5"]
    assert service["environment"] == {"A": "b"}
    assert "CUDA_VISIBLE_DEVICES: not exported" in text


def test_the_healthcheck_is_python_that_runs():
    check = composed(compose_file.write(exported(address={"port": 9})))["healthcheck"]["test"]
    assert check[:3] == ["CMD", "python3", "-c"]
    compile(check[3], "healthcheck", "exec")
    assert "http://127.0.0.1:9/health" in check[3]
    server = exported({"ssl-certfile": "/c.pem", "ssl-keyfile": "/k.pem"})
    assert "https://127.0.0.1" in compose_file.write(server)


def expanded(text, variables):
    """As the kubelet does: `$$` is `$`, `$(NAME)` a variable that is known, else itself."""
    return re.sub(
        r"\$\$|\$\(([^)]*)\)",
        lambda m: "$" if m[0] == "$$" else variables.get(m[1], m[0]),
        text,
    )


def read_manifest(text):
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def manifest(server):
    """The documents by kind, which Kubernetes' own schemas take."""
    text = kubernetes.write(server)
    documents = read_manifest(text)
    for document in documents.values():
        kubernetes_validate.validate(document, "1.37", strict=True)
    return text, documents


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(flag_sets, environments, removed)
def test_kubernetes_starts_exactly_that(flags, env, unset):
    server = exported(flags, env, unset, secrets=True)
    documents = read_manifest(kubernetes.write(server))
    [container] = documents["Deployment"]["spec"]["template"]["spec"]["containers"]
    variables: dict[str, str] = {}
    for entry in container["env"]:
        if "valueFrom" in entry:
            reference = entry["valueFrom"]["secretKeyRef"]
            assert reference["name"] == "sglang-some-study-1-secrets"
            variables[entry["name"]] = SECRETS[reference["key"]]
        else:
            variables[entry["name"]] = expanded(entry["value"], variables)
    words = [expanded(word, variables) for word in (*container["command"], *container["args"])]
    prefix = ["env", *(word for name in sorted(unset) for word in ("-u", name))] if unset else []
    assert words == prefix + resolved(words_of(server, host=ALL))
    assert {name: variables[name] for name in env} == env
    assert variables["HF_TOKEN"] == SECRETS["HF_TOKEN"]


def test_a_secret_under_another_name_is_a_secret_in_kubernetes_too():
    server = exported(env={"HF_TOKEN": Secret("TEAM_TOKEN")})
    _, documents = manifest(server)
    [container] = documents["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["env"][0]["valueFrom"]["secretKeyRef"]["key"] == "TEAM_TOKEN"


def test_what_a_container_needs_in_kubernetes():
    text, documents = manifest(exported(start_s=930, secrets=True))
    pod = documents["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 930
    assert startup["httpGet"]["path"] == "/health"
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTP"
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory"}
    claim = documents["PersistentVolumeClaim"]["metadata"]["name"]
    assert volumes["model-cache"]["persistentVolumeClaim"]["claimName"] == claim
    assert {m["name"] for m in container["volumeMounts"]} == set(volumes)
    service = documents["Service"]["spec"]
    labels = documents["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"] == labels
    assert documents["Deployment"]["metadata"]["annotations"]["simulated"] == "true"
    assert "kubectl create secret generic sglang-some-study-1-secrets" in text


def test_a_model_in_a_folder_needs_no_claim():
    server = exported({"model-path": "/models/a"}, local_paths=("/models/a",), gpus=0)
    text, documents = manifest(server)
    assert set(documents) == {"Deployment", "Service"}
    pod = documents["Deployment"]["spec"]["template"]["spec"]
    assert pod["volumes"][1]["hostPath"]["path"] == "/models/a"
    assert "resources" not in pod["containers"][0]
    assert "The node must have the model: /models/a" in text


@pytest.mark.parametrize("study", ["a", "...", "A_b.C" * 20, "9"])
def test_every_study_has_a_name_that_kubernetes_takes(study):
    documents = read_manifest(kubernetes.write(exported(study=study)))
    name = documents["PersistentVolumeClaim"]["metadata"]["name"]
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", name)


def test_files_that_a_container_does_not_have_are_named():
    server = exported({"ssl-certfile": "/c.pem", "model-path": "/m"}, local_paths=("/m",))
    for write in (compose_file.write, kubernetes.write):
        assert (
            "# NOTE: These files are needed in the container, but not mounted: /c.pem\n"
            in write(server)
        )


def test_a_port_that_is_no_number_is_refused_in_words():
    with pytest.raises(CommandError, match=r"server\.flags\.port of the study is '\$PORT'"):
        compose_file.write(exported(address={"port": "$PORT"}))
