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
RENDER = (
    f"{NEW} --checkpoint checkpoint --patch --out build/kiln",
    r"grade .*\S|checkpoint .*\S|(?<=  ) {8}\S.*\S|wrote .*",
)
CHECK = (f"check {PACKAGE}", r"All checks.*")
ENVIRONMENT = (f"env rollout --vllm-omni {VERSION}", r"next:.*")
VERIFY = (f"verify {PACKAGE} --checkpoint checkpoint", r"checkpoint +\w+|\d+ contracts: \d+ pass, \d+ fail, \d+ skip")
REST = (f"{NEW} --patch --out build/other --dry-run", r"grade .*\S|still to write.*|  common\.py:.*")
OTHER = (
    "new ember --pipeline ember/pipeline_ember.py:EmberPipeline --vllm-omni 0.30.0 --checkpoint ember_checkpoint"
    " --patch --out build/ember",
    r"grade .*\S|checkpoint .*\S|(?<=  ) {8}\S.*\S|still to write.*|wrote .*",
)
FAST, SLOW = (INSPECT, RENDER, CHECK, OTHER, REST), (ENVIRONMENT, VERIFY)

SEEN = (
    "velocity = (x - p0) / c1\n"
    "\n"
    "t2 = p1 + (p0 - p1) * 2\n"
    "velocity = (x - t2 * clamp(norm(p0, p=fro, dim=-1, keepdim=True) / "
    "clamp(norm(t2, p=fro, dim=-1, keepdim=True), min=1e-06), max=1)) / c4"
)

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
pipeline the package was made of; after an edit, `update` takes the new one, from the path of Python or the folder
that you stand in,
and says where it has but the copy. A fork or a local build of vllm-omni
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

## Another one

`ember`, in [tests/own_pipeline/ember](../tests/own_pipeline/ember), predicts the clean sample; its levels are a clamped
log-ratio of signal to noise, moved by the root of the board's size; two text encoders have widths of their own;
guidance acts in an interval of levels and is brought back to the norm of the prompt's prediction. Nothing of that is
declared or written by hand:

@OTHER@

What level `rollout` saw it step with, of its `formula.txt`: outside of the interval of guidance, and inside.

```
@SEEN@
```

Level `train` takes three steps with it in verl-omni's own trainer, saves, goes on from the checkpoint, and exports:
log-probs of both sides are 1.8e-7 apart, and those of a step from the export are equal (`make train-table`).

## What is left to you

Noise levels and guidance are never left to you: the rollout sends what it did, and training plays it again on its own
predictions. With `torch.median` in place of the deviation in `pipeline_kiln.py`, which no text can be followed
through, nothing is left to write either:

@REST@

What the tape cannot carry is refused at the first request, with the statement's file and line. What the loop's own
text shows of it, `new` says before: a prediction that a turn keeps for later ones (carried as a constant, where its
gradient ends), a turn that calls no denoiser, a decision by numbers of a prediction (the rollout refuses both). Where
the source keeps another thing from the tool, such as which method predicts, the package is `partial`: each place has
its reason, and raises `NotImplementedError` with the same words. `preset new PIPELINE` begins a preset with what no
source says.
"""


def prepare(folder: Path) -> Path:
    """Lay the pipeline and its checkpoint into a folder."""
    import ember_checkpoint
    import kiln_checkpoint

    for name in ("kiln", "ember"):
        shutil.copytree(HERE / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    kiln_checkpoint.write_checkpoint(folder / "checkpoint")
    ember_checkpoint.write_checkpoint(folder / "ember_checkpoint")
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
    text = TEXT.replace("@SEEN@", SEEN)
    for name, (command, _) in {n: globals()[n] for n in re.findall(r"@([A-Z]+)@", text) if n != "VERSION"}.items():
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
