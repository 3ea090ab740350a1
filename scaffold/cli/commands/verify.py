"""A package run on a tiny model."""

from __future__ import annotations

import shlex
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from scaffold.cli import completion
from scaffold.cli.answer import show_json
from scaffold.cli.options import ExportSvg, Format
from scaffold.errors import ScaffoldError
from scaffold.terminal.interrupt import doing

ORDER = 80


class VerifyLevel(str, Enum):
    """How far ``verify`` goes."""

    contract = "contract"
    rollout = "rollout"
    train = "train"


class TrainDevice(str, Enum):
    """What level ``train`` runs on."""

    cpu = "cpu"
    cuda = "cuda"


class TrainDtype(str, Enum):
    """Precision of rollout and training at level ``train``."""

    bfloat16 = "bfloat16"
    float32 = "float32"


def verify(
    package: Annotated[
        Path, typer.Argument(metavar="PACKAGE", help="Folder of a package: DIR/verl_omni/pipelines/foo_flow_grpo.")
    ],
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            "--checkpoint", metavar="DIR", help="Checkpoint to load the headers of, and to take the configuration of."
        ),
    ] = None,
    level: Annotated[
        VerifyLevel,
        typer.Option(
            "--level",
            help="contract: no vllm. rollout: that, and vllm-omni on a CPU. train: verl-omni's trainer on a CPU.",
        ),
    ] = VerifyLevel.contract,
    format: Annotated[Format, typer.Option("--format", help="How to print the results.")] = Format.text,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Also write a page (.html) or a section (.md).")
    ] = None,
    export_svg: ExportSvg = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            metavar="ID",
            help="Run this contract only; may be repeated.",
            autocompletion=completion.contracts,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", min=1, max=10_000, help="Training steps of level train; 16 by default."),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option("--variant", metavar="NAME", help="Way to train, lora by default, or all; may be repeated."),
    ] = None,
    verl_omni: Annotated[
        Path | None, typer.Option("--verl-omni", metavar="CHECKOUT", help="Checkout of verl-omni for level train.")
    ] = None,
    device: Annotated[
        TrainDevice, typer.Option("--device", help="What level train runs on; cuda: in bfloat16, nothing patched.")
    ] = TrainDevice.cpu,
    dtype: Annotated[
        TrainDtype | None, typer.Option("--dtype", help="Of rollout and training at level train; the device's own.")
    ] = None,
    init: Annotated[
        bool, typer.Option("--init", help="Write verify.toml beside a hand-written package, filled as far as known.")
    ] = False,
    beside: Annotated[
        Path | None, typer.Option("--beside", metavar="PACKAGE", help="Also train this package, by the same command.")
    ] = None,
) -> None:
    """Run a package on a tiny model, one line for each contract.

    It runs in child processes with limits on time and memory. Exit 1 where a contract fails, 2 where nothing ran.

    \b
    Example:
      omni-scaffold verify verl_omni/pipelines/foo_flow_grpo --level rollout
    """
    import gc

    from scaffold.terminal.progress import VOICE, announce, say
    from scaffold.verify.report import destination, terminal
    from scaffold.verify.run import verify as run_verify

    if init:
        _write_table(package)
        return
    training = None
    if level is VerifyLevel.train:
        from scaffold.verify.train.level import TrainRequest

        training = TrainRequest(
            steps or 16,
            tuple(variant or ()),
            verl_omni,
            beside,
            device=device.value,
            dtype=dtype.value if dtype else None,
            model=checkpoint,
        )
    elif steps or variant or verl_omni or beside or dtype or device is not TrainDevice.cpu:
        raise ScaffoldError("--steps, --variant, --verl-omni, --beside, --device and --dtype belong to --level train")

    if report is not None:
        destination.check_destination(report)
    gc.enable()  # tensors in reference cycles would fill the memory
    with doing("running the contracts"):
        # A training takes minutes: a log that is looked at says where it is, too.
        tell = say if training is None else announce
        found = run_verify(
            package, checkpoint=checkpoint, level=level.value, select=select or (), training=training, tell=tell
        )
    if format is Format.json:
        show_json(found.to_json())
    elif VOICE.quiet:
        terminal.print_failures(found)
    else:
        terminal.print_report(found, svg=export_svg, kept=report is not None)
    if report is not None:
        destination.write_report(found, report)
        say(f"report: {report}")
    if found.failed:
        raise typer.Exit(1)
    if found.unmeasured or not found.checks:
        from scaffold.verify.report.verdict import remedy, verdict

        raise ScaffoldError(verdict(found).rstrip("."), hint=_declare(package) or remedy(found))
    _refuse_unwritten(package)


def _refuse_unwritten(package: Path) -> None:
    """What passes of a package that is not written to its end is no pass of the package."""
    from scaffold.verify.package import open_package, unwritten_places

    places = unwritten_places(open_package(package, declared=False))
    if places:
        what = "1 place of it is" if len(places) == 1 else f"{len(places)} places of it are"
        shown = "; ".join(places[:5]) + ("; …" if len(places) > 5 else "")
        hint = f"`omni-scaffold check {shlex.quote(str(package))} --select OSC140` lists them"
        raise ScaffoldError(f"nothing fails, and {what} still to be written: {shown}", hint=hint)


def _write_table(package: Path) -> None:
    """Write the table of a hand-written package beside it; never overwrite one."""
    from scaffold.verify.init import init_path, init_text
    from scaffold.verify.package import open_package

    opened = open_package(package, declared=False)
    file = init_path(opened)
    if opened.spec:
        raise ScaffoldError(f"{package} has a scaffold.toml, which says what verify needs")
    if file.exists():
        raise ScaffoldError(f"{file} is there already", hint="edit it, or remove it first")
    text = init_text(opened)
    file.write_text(text, encoding="utf-8")
    print(text, end="")
    print(f'next: put a value in place of each "?" in {file}, then omni-scaffold verify {package}')


def _declare(package: Path) -> str | None:
    """If a package without a table could not run at all, print a table to fill in and return what to do."""
    from scaffold.verify.declared import FILE, TABLE
    from scaffold.verify.init import first_unknown, init_text
    from scaffold.verify.package import open_package

    opened = open_package(package)
    if opened.spec or opened.declared.place:
        return None
    text = init_text(opened)
    print(f"\n# {opened.folder.relative_to(opened.root) / FILE}\n{text}", file=sys.stderr)
    key = f"{FILE} beside the package has to say [{TABLE}] {first_unknown(text)}"
    return f"{key}: `omni-scaffold verify {package} --init` writes it, as far as it is known"
