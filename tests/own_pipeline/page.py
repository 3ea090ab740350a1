"""docs/own-pipeline.md: the road of an invented pipeline as commands, each with what it printed.

``python tests/own_pipeline/page.py > docs/own-pipeline.md`` runs them all, which takes some minutes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / "docs" / "own-pipeline.md"
OWN = "kiln/pipeline_kiln.py:KilnPipeline"
PACKAGE = "build/kiln/verl_omni/pipelines/kiln_flow_grpo"
VERSION = "0.30.0+kiln.gDIGEST"  # the digest is that of the files
WIDE = {"COLUMNS": "140"}  # what a terminal is, wherever the page is made
NEW = f"new kiln --pipeline {OWN} --vllm-omni 0.30.0"

# Command, and the lines of its output that the page has: what a pattern matches of them.
INSPECT = (
    f"inspect {OWN} --vllm-omni 0.30.0",
    r"verdict \w+|  (class|formula|scales|stacked|files) .*\S|\d+ answers:.*",
)
RENDER = (f"{NEW} --checkpoint checkpoint --out build/kiln", r"grade .*\S|checkpoint .*\S|(?<=  ) {8}\S.*\S|wrote .*")
CHECK = (f"check {PACKAGE}", r"All checks.*")
ENVIRONMENT = (f"env rollout --vllm-omni {VERSION}", r"next:.*")
VERIFY = (f"verify {PACKAGE} --checkpoint checkpoint", r"checkpoint +\w+|\d+ contracts: \d+ pass, \d+ fail, \d+ skip")
REST = (f"{NEW} --out build/other --dry-run", r"grade .*\S|still to write.*|  common\.py:.*")
FAST, SLOW = (INSPECT, RENDER, CHECK, REST), (ENVIRONMENT, VERIFY)

TEXT = """\
# A pipeline of your own

A pipeline that is in no release of vllm-omni goes the same road as one that is. `kiln` is an invented mixture of two
transformers, words and tiles, with a loop, levels and guidance of its own; its two files are in
[tests/own_pipeline/kiln](../tests/own_pipeline/kiln). Every command below is run by a test, and this page is written
from what they print; lines are left out at `…`.

## What it takes

- The pipeline lies in a Python package: a folder with `__init__.py`. It need not be registered in vllm-omni, nor
  installed; `PATH/TO/FILE.py:CLASS` names it, or `module:CLASS` where it is installed. In training, the workers import
  it, so install it there (`pip install -e .`) or put its parent on `PYTHONPATH`.
- What the engine calls: a constructor with `od_config`, `forward(req)`, `load_weights(weights)`, and `weights_sources`
  where the engine streams the files.
- A checkpoint of it, here the folder `checkpoint`: `config.json` and safetensors.

## Read it

@INSPECT@

Each answer has its file and line; `--show FACT` prints the lines. What is `unknown` the package leaves to you, or reads
when it runs.

## Render it

@RENDER@

With `--checkpoint` the package loads the headers of the files before it is written: exit code 1, and nothing is
written, where it does not fit ([remap.md](remap.md)). The version in `scaffold.lock.toml` is @VERSION@: the release,
the package's name and the digest of your files. A copy of them is kept in the cache, so later commands know which
pipeline the package was made of; after an edit, `update` takes the new one. A fork or a local build of vllm-omni
(`--vllm-omni DIR|WHEEL`) is kept the same way.

## Check and verify it

@CHECK@

@ENVIRONMENT@

The environment stands on that of the nearest release; your package is put into it. Without it, `verify` exits with 2
and this command.

@VERIFY@

The tiny model, its text encoders and its autoencoder have the settings of the checkpoint's own configuration, sizes
made small. Without `--checkpoint` they come from the names of the settings, and where a name does not say, the failure
has it and the table of `scaffold.toml` to put it into, `[verify.denoiser]` or `[verify.components.FOLDER]`. What is
skipped needs two GPUs, or is measured at level `rollout` (`verify PACKAGE --level rollout`).

## What is left to you

Where the source does something that the tool cannot follow, the package is `partial`. Each place has its reason, with
the statement that stopped it, and raises `NotImplementedError` with the same words. With `torch.median` in place of the
deviation in `pipeline_kiln.py`:

@REST@

Write `guide()` there by hand: `update` keeps it. Or write the pipeline so that it can be followed: in arithmetic,
norms, deviations along named dimensions, `lerp` and `where`. `preset new PIPELINE`
begins a preset with what no source says.
"""


def prepare(folder: Path) -> Path:
    """Lay the pipeline and its checkpoint into a folder."""
    from kiln_checkpoint import write_checkpoint

    shutil.copytree(HERE / "kiln", folder / "kiln", ignore=shutil.ignore_patterns("__pycache__"))
    write_checkpoint(folder / "checkpoint")
    return folder


def alter(folder: Path) -> None:
    """Give the pipeline something that is not followed."""
    file = folder / "kiln" / "pipeline_kiln.py"
    text = file.read_text()
    changed = text.replace("wanted.std(dim=(-2, -1), keepdim=True)", "torch.median(wanted)")
    assert changed != text
    file.write_text(changed)


def version_of(folder: Path) -> str:
    """The version that the rendered package has."""
    text = "".join(path.read_text() for path in (folder / PACKAGE).glob("scaffold*.toml"))
    found = re.search(r"0\.30\.0\+kiln\.g[0-9a-f]{8}", text)
    assert found is not None
    return found[0]


def shown(printed: str, pattern: str) -> str:
    """The lines of an output that the page has."""
    lines: list[str] = []
    for line in printed.splitlines():
        found = re.match(pattern, line)
        if found is not None:
            lines.append(found[0])
        elif line.strip() and lines and lines[-1] != "…":
            lines.append("…")
    return "\n".join(lines[:-1] if lines and lines[-1] == "…" else lines)


def page(outputs: Mapping[str, str], version: str) -> str:
    """The document, of the shown output of each command."""
    text = TEXT
    for name, (command, _) in {n: globals()[n] for n in re.findall(r"@([A-Z]+)@", TEXT) if n != "VERSION"}.items():
        block = f"```console\n$ omni-scaffold {command.replace(VERSION, version)}\n{outputs[command]}\n```"
        text = text.replace(f"@{name}@", block)
    return text.replace("@VERSION@", f"`{version}`")


def outputs_in(document: str) -> dict[str, str]:
    """The shown output of each command, as a document has it."""
    found = re.findall(r"```console\n\$ omni-scaffold (.*)\n((?:.*\n)*?)```", document)
    return {re.sub(r"\+kiln\.g[0-9a-f]{8}", "+kiln.gDIGEST", command): text.rstrip("\n") for command, text in found}


def run_road(folder: Path, run: Callable[..., str], commands: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Run commands in a folder and take what is shown of them."""
    outputs = {}
    for command, pattern in commands:
        if command == REST[0]:
            alter(folder)
        words = shlex.split(command.replace(VERSION, version_of(folder) if VERSION in command else ""))
        outputs[command] = shown(run(*words), pattern)
    return outputs


def main() -> None:
    """Print the document."""

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "scaffold", *words]
        done = subprocess.run(command, cwd=folder, env=os.environ | WIDE, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout

    with tempfile.TemporaryDirectory() as made:
        folder = prepare(Path(made))
        outputs = run_road(folder, run, (INSPECT, RENDER, CHECK, *SLOW, REST))
        print(page(outputs, version_of(folder)), end="")


if __name__ == "__main__":
    main()
