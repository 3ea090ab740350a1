"""Puts the CPU platform into an environment as a distribution, so that vllm-omni finds its entry point."""

from __future__ import annotations

import hashlib
from pathlib import Path

from scaffold.files.reading import read_bytes

NAME = "omni-scaffold-cpu"
VERSION = "1"
GROUP = "vllm_omni.platform_plugins"
SOURCES = Path(__file__).resolve().parent / "platform"


def plugin_digest() -> str:
    """Digest of the plugin's files."""
    content = b"".join(read_bytes(path) for path in sorted(SOURCES.glob("*.py")))
    return hashlib.sha256(content).hexdigest()[:16]


def install_plugin(site_packages: Path) -> None:
    """Copy the modules and write the metadata that declares the entry point."""
    for path in SOURCES.glob("*.py"):
        (site_packages / path.name).write_bytes(read_bytes(path))
    info = name_distribution(site_packages, NAME, VERSION)
    (info / "entry_points.txt").write_text(f"[{GROUP}]\ncpu = omni_scaffold_cpu:plugin\n", encoding="utf-8")


def name_distribution(folder: Path, name: str, version: str) -> Path:
    """Write the metadata of a distribution without content below a folder of the path, and return its place."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    return info
