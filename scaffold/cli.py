"""The command line: one function per command; everything heavy is imported inside it."""

from __future__ import annotations

import os
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from scaffold import __version__
from scaffold.errors import ScaffoldError

app = typer.Typer(
    name="omni-scaffold",
    help="Bring a model that diffusers cannot load into VeRL-Omni: inspect its vllm-omni pipeline, render the "
    "integration, keep it right.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Format(str, Enum):
    """Output formats of ``inspect``."""

    text = "text"
    json = "json"


class VerifyLevel(str, Enum):
    """How far ``verify`` goes."""

    contract = "contract"
    rollout = "rollout"


class CheckFormat(str, Enum):
    """Output formats of ``check``."""

    text = "text"
    json = "json"
    github = "github"
    sarif = "sarif"


VllmOmni = Annotated[
    str | None,
    typer.Option("--vllm-omni", metavar="VERSION|WHEEL|DIR", help="vllm-omni to read; fetched once if a version."),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR_OR_REPO",
        help="Folder, file or Hub repository (owner/name[@revision]) whose headers are read, never its data.",
    ),
]


def _version(value: bool) -> None:
    if value:
        typer.echo(f"omni-scaffold {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Options of every command."""


@app.command()
def inspect(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="PIPELINE", help="Registry key, model folder or module:Class.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print the table of all registered pipelines instead.")
    ] = False,
    checkpoint: Checkpoint = None,
    vllm_omni: VllmOmni = None,
    format: Annotated[Format, typer.Option("--format", help="How to print the answers.")] = Format.text,
    export_svg: Annotated[
        Path | None, typer.Option("--export-svg", metavar="FILE", help="Also keep the text report as an SVG.")
    ] = None,
) -> None:
    """Answer what an integration must know about a pipeline, each answer with file and line."""
    from scaffold.inspect import inspect_pipeline
    from scaffold.upstream import locate

    if everything:
        if pipeline is not None or checkpoint is not None or export_svg is not None:
            raise ScaffoldError("--all takes no PIPELINE, --checkpoint or --export-svg: it looks at every pipeline")
        _inspect_all(vllm_omni, format)
        return
    if pipeline is None:
        raise ScaffoldError("no PIPELINE: give a registry key, a model folder or module:Class, or --all for all")
    headers = None
    if checkpoint is not None:
        from scaffold.checkpoint import read_checkpoint

        headers = read_checkpoint(checkpoint)
    report = inspect_pipeline(locate(vllm_omni), pipeline, headers)
    if format is Format.json:
        import json

        typer.echo(json.dumps(report.to_json(), indent=2))
        return
    from scaffold.inspect.text import print_report

    print_report(report, svg=export_svg)


def _inspect_all(vllm_omni: str | None, format: Format) -> None:
    from scaffold.inspect.table import inspect_all

    table = inspect_all(vllm_omni)
    if format is Format.json:
        import json

        typer.echo(json.dumps(table, indent=2))
        return
    from scaffold.inspect.table_text import print_table
    from scaffold.upstream import locate

    print_table(table, locate(vllm_omni).label)


@app.command()
def new(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the integration: a lower-case identifier.")],
    pipeline: Annotated[
        str | None, typer.Option("--pipeline", metavar="PIPELINE", help="Pipeline to integrate; MODEL by default.")
    ] = None,
    checkpoint: Checkpoint = None,
    verl_omni: Annotated[
        str | None, typer.Option("--verl-omni", metavar="CHECKOUT", help="Checkout of verl-omni to write into.")
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="Folder to write to, edits as a patch beside the tree.")
    ] = None,
    vllm_omni: VllmOmni = None,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="RELEASE", help="verl-omni release to write for with --out (default main)."),
    ] = None,
    spec: Annotated[
        Path | None, typer.Option("--spec", metavar="FILE", help="Render this scaffold.toml instead of inspecting.")
    ] = None,
    date: Annotated[
        str | None, typer.Option("--date", metavar="MM/DD/YYYY", help="Date that documentation pages carry.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the files, write nothing.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show the changes as a diff, write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that differ.")] = False,
    export_svg: Annotated[
        Path | None, typer.Option("--export-svg", metavar="FILE", help="Also keep what is printed as an SVG.")
    ] = None,
) -> None:
    """Render the integration of a model and wire it into verl-omni."""
    from scaffold.new import NewRequest, plan_new
    from scaffold.new_text import print_result

    request = NewRequest(model, pipeline, checkpoint, vllm_omni, verl_omni, out, profile, spec, date, force)
    result = plan_new(request)
    if diff:
        typer.echo(result.plan.diff(), nl=False)
    elif dry_run:
        print_result(result, written=None, svg=export_svg)
    if diff or dry_run:
        result.plan.check()
        return
    print_result(result, written=result.plan.commit(), svg=export_svg)


@app.command()
def remap(
    target: Annotated[
        str, typer.Argument(metavar="PACKAGE_OR_PIPELINE", help="Folder of a rendered package, or a pipeline.")
    ],
    checkpoint: Checkpoint = None,
    vllm_omni: VllmOmni = None,
    format: Annotated[Format, typer.Option("--format", help="How to print the map and its proof.")] = Format.text,
    meta: Annotated[
        bool, typer.Option("--meta", help="Build the package's module on torch's meta device; this runs its code.")
    ] = False,
    lora_targets: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="LoRA targets to prove instead of the package's own.")
    ] = None,
) -> None:
    """Print the map from a checkpoint's keys to the training module, and prove it; exit 1 where it does not hold."""
    from scaffold.remap.command import RemapRequest, remap
    from scaffold.remap.text import SHOWN, offender_lines, print_result

    result = remap(RemapRequest(target, checkpoint, vllm_omni, meta, lora_targets))
    if format is Format.json:
        import json

        typer.echo(json.dumps(result.proof.to_json(), indent=2))
        for line in offender_lines(result.proof.offenders, SHOWN):
            typer.echo(line, err=True)
    else:
        print_result(result)
    if not result.proof.holds:
        raise typer.Exit(1)


@app.command()
def drift(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="Registry key, model folder or module:Class.")],
    after: Annotated[str, typer.Option("--to", metavar="VERSION|WHEEL|DIR|newest", help="The newer vllm-omni.")],
    before: Annotated[
        str | None,
        typer.Option("--from", metavar="VERSION|WHEEL|DIR", help="The older one; by default that of the package."),
    ] = None,
    package: Annotated[
        str | None, typer.Option("--package", metavar="PACKAGE", help="Package to look at; exit 1 if it is affected.")
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print what changed.")] = Format.text,
) -> None:
    """Compare a pipeline in two versions of vllm-omni: facts, the lines that rest on them, what breaks."""
    from scaffold.drift import DriftRequest, compare

    found = compare(DriftRequest(pipeline, before, after, package))
    if format is Format.json:
        import json

        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        from scaffold.drift.text import print_drift

        print_drift(found)
    if package is not None and found.affected is not False:
        raise typer.Exit(1)


Package = Annotated[str, typer.Argument(metavar="PACKAGE", help="Folder of a package that `new` wrote.")]


@app.command()
def update(
    package: Package,
    vllm_omni: VllmOmni = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="VERSION|WHEEL|DIR",
            help="vllm-omni it was rendered from, if the recorded one is gone.",
        ),
    ] = None,
    spec: Annotated[bool, typer.Option("--spec", help="Render the edited scaffold.toml, without inspecting.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the files, write nothing.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show the changes as a diff, write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Merge also where the earlier state is unknown.")] = False,
) -> None:
    """Carry a package to another vllm-omni or an edited spec, merged with what was edited by hand."""
    from scaffold.lifecycle.check_result import print_check
    from scaffold.lifecycle.text import print_update
    from scaffold.lifecycle.update import UpdateRequest, plan_update

    result = plan_update(UpdateRequest(package, vllm_omni, base, spec, force))
    if diff:
        typer.echo(result.plan.diff(), nl=False)
    if diff or dry_run:
        if not diff:
            print_update(result, written=None)
        result.plan.check()
        result.check_complete(written=False)
        return
    print_update(result, written=result.plan.commit())
    clean = print_check(result.package)
    result.check_complete(written=True)
    if not clean:
        raise typer.Exit(1)


@app.command()
def remove(
    package: Package,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the files, write nothing.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show the changes as a diff, write nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Remove edited files too.")] = False,
) -> None:
    """Undo `new`: take the package's files away and the edits back; edited files stay."""
    from scaffold.lifecycle.remove import plan_remove
    from scaffold.lifecycle.text import print_removal

    removal = plan_remove(package, force=force)
    if diff:
        typer.echo(removal.plan.diff(), nl=False)
    elif dry_run:
        print_removal(removal, written=None)
    else:
        print_removal(removal, written=removal.plan.commit())
    removal.check_complete()


@app.command()
def verify(
    package: Annotated[
        Path, typer.Argument(metavar="PACKAGE", help="Folder of a package: DIR/verl_omni/pipelines/foo_flow_grpo.")
    ],
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="Checkpoint whose configuration the model takes, shrunk."),
    ] = None,
    level: Annotated[
        VerifyLevel,
        typer.Option("--level", help="contract: seconds, no vllm. rollout: that, and vllm-omni itself on a CPU."),
    ] = VerifyLevel.contract,
    format: Annotated[Format, typer.Option("--format", help="How to print the results.")] = Format.text,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Also write a page (.html) or a section (.md).")
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option("--select", metavar="ID", help="Run this contract only; may be repeated.")
    ] = None,
) -> None:
    """Run a package on a tiny model, in child processes with limits, one line for each contract."""
    from scaffold.verify.report import check_destination, print_report, write_report
    from scaffold.verify.run import verify as run_verify

    if report is not None:
        check_destination(report)
    found = run_verify(package, checkpoint=checkpoint, level=level.value, select=select or ())
    if format is Format.json:
        import json

        typer.echo(json.dumps(found.to_json(), indent=2))
    else:
        print_report(found)
    if report is not None:
        write_report(found, report)
    if found.failed:
        raise typer.Exit(1)


@app.command()
def check(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH...", help="Packages, checkouts of verl-omni or single files.")
    ] = None,
    format: Annotated[CheckFormat, typer.Option("--format", help="How to print the findings.")] = CheckFormat.text,
    fix: Annotated[bool, typer.Option("--fix", help="Apply safe fixes.")] = False,
    unsafe_fixes: Annotated[bool, typer.Option("--unsafe-fixes", help="Apply the other fixes too.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show what the fixes change, write nothing.")] = False,
    select: Annotated[
        list[str] | None, typer.Option("--select", metavar="RULES", help="Run only these: OSC203, OSC2, a name.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", metavar="RULES", help="Leave these out.")] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", metavar="FILE", help="Leave out the findings that FILE lists.")
    ] = None,
    write_baseline: Annotated[
        Path | None, typer.Option("--write-baseline", metavar="FILE", help="List the findings in FILE.")
    ] = None,
    explain: Annotated[str | None, typer.Option("--explain", metavar="RULE", help="Say what a rule is about.")] = None,
    list_rules: Annotated[bool, typer.Option("--list-rules", help="List all rules.")] = False,
) -> None:
    """Lint integrations against the guide's checklist and the known bugs; nothing is imported or executed."""
    from scaffold.check.command import CheckRequest, run_check

    request = CheckRequest(
        paths=tuple(paths or ()),
        format=format.value,
        fix=fix,
        unsafe_fixes=unsafe_fixes,
        diff=diff,
        select=tuple(select or ()),
        ignore=tuple(ignore or ()),
        baseline=baseline,
        write_baseline=write_baseline,
        explain=explain,
        list_rules=list_rules,
    )
    outcome = run_check(request, colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    typer.echo(outcome.text, nl=False)
    if outcome.note:
        typer.echo(outcome.note, err=True)
    raise typer.Exit(outcome.status)


def main() -> NoReturn:
    """Run the command; errors of the user's are one line on stderr."""
    try:
        status = app(standalone_mode=False)
    except ScaffoldError as error:
        _fail(error.line, error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted; the next run finishes or undoes what was begun", 130)
    except BrokenPipeError:
        # The reader of a pipe has seen enough; Python would complain again while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        _usage(error)
    sys.exit(status if isinstance(status, int) else 0)


def _usage(error: Exception) -> NoReturn:
    """Say what is wrong with the command line; typer keeps the exceptions for it to itself, under changing names."""
    say = getattr(error, "format_message", None)
    if say is None:
        raise error
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        typer.echo(context.get_help(), err=True)
        sys.exit(2)
    command = context.command_path if context is not None else "omni-scaffold"
    _fail(f"{say().rstrip('.')}; see {command} --help", 2)


def _fail(line: str, status: int) -> NoReturn:
    typer.echo("error: " + " ".join(line.split()), err=True)
    sys.exit(status)
