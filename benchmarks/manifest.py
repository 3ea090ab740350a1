"""Write the manifest of a complete pipeline's checkpoint: names, dtypes and shapes of its tensors.

    python benchmarks/manifest.py BooguImagePipeline                      # derived from the pipeline's source
    python benchmarks/manifest.py BooguImagePipeline --checkpoint REPO    # from the headers of released files

Derived: the pipeline's own code, as the package that `new` renders executes it, builds the denoiser at the released
configuration without memory, and ``[names]`` of ``scaffold/presets/layouts/PIPELINE.toml`` says what the checkpoint
calls its parameters. No vllm-omni has to be installed. With ``--checkpoint`` (a folder, or a repository of the Hub)
only headers are read. The manifest goes to standard output, its figures to standard error.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from scaffold.checkpoint import TensorHeader, manifest_text, read_checkpoint
from scaffold.files.resources import kit_root
from scaffold.grade.layout import Layout, digest, layouts
from scaffold.render.names import model_name
from scaffold.verify.executed_text import upstream_for
from scaffold.verify.package import open_package

VERSION = "0.30.0"


def rendered(pipeline: str, out: Path) -> Path:
    """Render the package of a pipeline; returns its folder."""
    name = model_name(pipeline)
    command = [sys.executable, "-m", "scaffold", "new", name, "--pipeline", pipeline, "--vllm-omni", VERSION]
    subprocess.run([*command, "--patch", "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
    return out / f"verl_omni/pipelines/{name}_flow_grpo"


def derived(pipeline: str, layout: Layout, folder: Path) -> Iterator[TensorHeader]:
    """Yield the tensors of the denoiser that the pipeline's code builds of the released configuration."""
    import torch

    for path, values in layout.configs.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(values), encoding="utf-8")
    package = rendered(pipeline, folder / "out")
    sys.path[:0] = [str(kit_root()), str(package.parents[2])]
    os.environ |= upstream_for(open_package(package), folder / "executed")
    source = importlib.import_module(f"verl_omni.pipelines.{package.name}.{model_name(pipeline)}_model").SOURCE
    module, _, _ = source.built(str(folder), torch.bfloat16)
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for parameter, tensor in module.named_parameters():
        name = parameter
        for pattern, put in (layout.names or {}).items():
            name = re.sub(pattern, put, name)
        shapes.setdefault(name, []).append(tuple(tensor.shape))
    for name, parts in shapes.items():
        dtype = next((kind for kind, pattern in layout.dtypes.items() if re.search(pattern, name)), "BF16")
        # Parameters of one name are rows of one tensor.
        yield TensorHeader(name, dtype, (sum(part[0] for part in parts), *parts[0][1:]), "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pipeline", choices=sorted(layouts()))
    parser.add_argument("--checkpoint", metavar="DIR_OR_REPO", help="the release, or a folder with its files")
    asked = parser.parse_args()
    layout = layouts()[asked.pipeline]
    if asked.checkpoint:
        headers = read_checkpoint(asked.checkpoint)
        tensors = list(headers.select(set(layout.weight_files) & {file.name for file in headers.files}).entries)
    elif layout.names is None:
        parser.error(f"the manifest of {asked.pipeline} is not derived: give --checkpoint")
    else:
        with tempfile.TemporaryDirectory() as folder:
            tensors = list(derived(asked.pipeline, layout, Path(folder)))
    sys.stdout.write(manifest_text(tensors))
    size = sum(tensor.nbytes for tensor in tensors)
    print(f"{len(tensors)} tensors, {size:,} bytes, names and shapes {digest(tensors)}", file=sys.stderr)


if __name__ == "__main__":
    main()
