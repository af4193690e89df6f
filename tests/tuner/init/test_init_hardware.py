"""Reading GPUs from text and from `nvidia-smi`."""

from __future__ import annotations

import pytest

from tuner.init.hardware import (
    Hardware,
    detect,
    link_of_name,
    parse_gpus,
    parse_topology,
    visible,
)

from .init_machines import fake_nvidia_smi, topology


@pytest.mark.parametrize(
    ("text", "count", "name", "link"),
    [
        ("8x RTX PRO 6000", 8, "RTX PRO 6000", "pcie"),
        ("8 x NVIDIA H100 80GB HBM3", 8, "NVIDIA H100 80GB HBM3", "nvlink"),
        ("2\u00d7RTX 4090", 2, "RTX 4090", "pcie"),
        ("4 H100", 4, "H100", None),
        ("8*H200", 8, "H200", "nvlink"),
        ("2x H100 PCIe", 2, "H100 PCIe", "pcie"),
        ("2", 2, "", None),
        ("RTX 4090", 1, "RTX 4090", None),
        (" H100 ", 1, "H100", None),
        ("NVIDIA GB200", 1, "NVIDIA GB200", None),
        ("a100-sxm4-80gb", 1, "a100-sxm4-80gb", None),
        ("MI300X", 1, "MI300X", None),
        ("4 Foo", 4, "Foo", None),
    ],
)
def test_number_name_and_link_are_read_from_text(text, count, name, link):
    found = parse_gpus(text)
    assert (found.gpus, found.name, found.link) == (count, name, link)


@pytest.mark.parametrize(
    "text",
    ["m/x", "", "0", "0x H100", "4090", "5090 x 2", "Qwen/Qwen3-32B", "Qwen3-32B", "four", "yes"],
)
def test_other_text_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="8x RTX PRO 6000"):
        parse_gpus(text)


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("NVIDIA A100-SXM4-80GB", "nvlink"),
        ("NVIDIA B200", "nvlink"),
        ("NVIDIA H20", "nvlink"),
        ("NVIDIA GB200", "nvlink"),
        ("NVIDIA A100-PCIE-40GB", "pcie"),
        ("NVIDIA L40S", "pcie"),
        ("NVIDIA GeForce RTX 3090", "pcie"),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA A40", None),
    ],
)
def test_the_name_decides_the_link_if_products_have_only_one(name, link):
    assert link_of_name(name) == link


def test_links_are_read_from_nvidia_smi_topo():
    links = dict(parse_topology(topology(8, "NODE")))
    assert len(links) == 28
    assert links[0, 7] == "NODE"
    assert set(dict(parse_topology(topology(2, "NV18"))).values()) == {"NV18"}
    assert parse_topology("nonsense\n") == ()
    assert parse_topology("") == ()


@pytest.mark.parametrize(
    ("topo", "count", "link"),
    [
        (topology(8, "SYS"), 8, "pcie"),
        (topology(8, "NV18"), 8, "nvlink"),
        (topology(2, "PHB"), 2, "pcie"),
        # Bridges join pairs, not all GPUs.
        (topology(4, "SYS", bridged="NV4"), 4, "pcie"),
        # Without a topology the name decides.
        ("", 8, "pcie"),
    ],
)
def test_detect_reads_count_name_and_link(tmp_path, monkeypatch, topo, count, link):
    name = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    folder = fake_nvidia_smi(tmp_path / "bin", name, count, topo)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    found = detect()
    assert (found.gpus, found.name, found.link) == (count, name, link)
    assert found.is_sm120
    assert (
        found.describe()
        == f"{count}x {name}, {'PCIe' if link == 'pcie' else 'NVLink'} (nvidia-smi)"
    )


def test_subset_has_the_link_of_its_gpus():
    machine = Hardware(4, "A40", "pcie", "", parse_topology(topology(4, "SYS", bridged="NV4")))
    assert machine.subset((0, 1)).link == "nvlink"
    assert machine.subset((1, 2)).link == "pcie"
    assert machine.subset((2,)).link is None


def test_visible_takes_the_first_numbers_of_cuda_visible_devices():
    assert visible(None, 4) == (0, 1, 2, 3)
    assert visible("4,5,6,7", 2) == (4, 5)
    assert visible("GPU-8932f937", 2) == (0, 1)
    assert visible("", 1) == (0,)


@pytest.mark.parametrize("script", ["exit 9", "echo 'NVIDIA-SMI has failed'", "true"])
def test_detect_returns_no_gpus_without_a_working_driver(tmp_path, monkeypatch, script):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert detect() == Hardware(0)


@pytest.mark.parametrize(
    ("hardware", "expected"),
    [
        (Hardware(4, "A100 PCIe", "pcie", "given"), "4x A100 PCIe (given)"),
        (Hardware(8, "L40S", "pcie", "nvidia-smi"), "8x L40S, PCIe (nvidia-smi)"),
        (
            Hardware(2, "", "nvlink", "assumed from the command", link_source="given"),
            "2 GPUs (assumed from the command), NVLink (given)",
        ),
        (
            Hardware(2, "H100", "pcie", "given", link_source="assumed"),
            "2x H100 (given), PCIe (assumed)",
        ),
        (
            Hardware(2, "A100 PCIe", "nvlink", "given", link_source="given"),
            "2x A100 PCIe, NVLink (given)",
        ),
    ],
)
def test_describe_names_the_sources(hardware, expected):
    assert hardware.describe() == expected
