"""Presets of a team: one to begin with, and which ones count."""

from __future__ import annotations

import shlex
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from scaffold.cli import completion
from scaffold.cli.answer import show_json, show_next
from scaffold.cli.options import AnswerFormat, Format, VllmOmni
from scaffold.errors import ConflictError, ScaffoldError
from scaffold.terminal.progress import VOICE

ORDER = 130
SCHEMA = 1


class Action(str, Enum):
    """What ``preset`` does."""

    new = "new"
    list = "list"


def preset(
    action: Annotated[
        Action, typer.Argument(metavar="new|list", help="new: write one to start from. list: show those in effect.")
    ],
    pipeline: Annotated[
        str | None,
        typer.Argument(
            metavar="[PIPELINE]",
            help="With new, the pipeline that it is for.",
            autocompletion=completion.pipelines,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="MODEL", help="MODEL of `new` that it is for; the pipeline's by default."),
    ] = None,
    verl_omni: Annotated[
        str | None, typer.Option("--verl-omni", metavar="CHECKOUT", help="Checkout; by default the one around you.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="File to write, in place of one in the checkout.")
    ] = None,
    vllm_omni: VllmOmni = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite another file.")] = False,
    format: AnswerFormat = Format.text,
) -> None:
    """Write a preset of your own, or list those in effect.

    A preset holds what no source says about a model: guidance of the recipe, sizes, batch sizes.

    \b
    Examples:
      omni-scaffold preset new FooPipeline --verl-omni ~/verl-omni
      omni-scaffold preset list
    """
    from scaffold.target import Checkout

    checkout = Checkout.open(verl_omni) if verl_omni is not None else Checkout.above(Path.cwd())
    as_json = format is Format.json
    if action is Action.list:
        if pipeline is not None or name is not None or out is not None:
            raise ScaffoldError("`preset list` takes no pipeline, --name or --out")
        _list(checkout.root if checkout is not None else None, as_json=as_json)
        return
    if pipeline is None:
        raise ScaffoldError("say which pipeline the preset is for", hint="`omni-scaffold list` shows all")
    if out is None and checkout is None:
        raise ScaffoldError(
            "say where the preset goes",
            hint="give --verl-omni CHECKOUT or --out FILE, or run this inside of a checkout",
        )
    from scaffold.inspect import inspect_pipeline
    from scaffold.new.starter import starter
    from scaffold.plan.change import FileState, PlannedChange
    from scaffold.plan.output import states
    from scaffold.plan.plan import Plan
    from scaffold.render import derive_names
    from scaffold.render.names import model_name
    from scaffold.spec import SpecRequest
    from scaffold.target import default_profile
    from scaffold.team import FOLDER, PRESETS
    from scaffold.terminal.progress import step
    from scaffold.upstream import locate

    source = locate(vllm_omni, checkout_pin=checkout.vllm_omni_pin if checkout is not None else None)
    with step(f"reading vllm-omni {source.label}"):
        report = inspect_pipeline(source, pipeline)
    key = report.value("detail.pipeline.registry_key")
    name = name or model_name(str(key or report.upstream.pipeline))
    names = derive_names(name)
    profile = checkout.profile if checkout is not None else default_profile()
    with step("working out the defaults"):
        text = starter(SpecRequest(report, names, profile), source)
    if out is not None:
        root, path = out.absolute().parent, out.name
    else:
        assert checkout is not None
        root, path = checkout.root, f"{FOLDER}/{PRESETS}/{name}.toml"
    before, after = states(root, [path])[path], FileState.text(text)
    conflict = "differs" if before is not None and before != after else None
    plan = Plan(root, (PlannedChange(path, before, after, conflict),), force, ConflictError)
    written = plan.commit()
    if as_json:
        show_json({"schema": SCHEMA, "written": bool(written), **plan.to_json()})
        return
    if not VOICE.quiet:
        typer.echo(plan.tree(), nl=False)
    given = {"--preset": out, "--vllm-omni": vllm_omni, "--verl-omni": verl_omni}
    options = "".join(f" {flag} {shlex.quote(str(value))}" for flag, value in given.items() if value is not None)
    options += " --out DIR" if checkout is None else ""
    show_next(f"edit it, then `omni-scaffold new {name} --pipeline {shlex.quote(pipeline)}{options} --dry-run`")


def _list(root: Path | None, *, as_json: bool) -> None:
    from scaffold.spec.preset import layers_of
    from scaffold.team import team_of
    from scaffold.terminal.printable import printable

    presets = [
        {
            "name": one.name,
            "where": one.file.where if one.file is not None else "packaged",
            "path": one.file.shown if one.file is not None else None,
            "pipelines": [*one.pipelines],
        }
        for layer in layers_of(team_of(root))
        for one in layer
    ]
    if as_json:
        show_json({"schema": SCHEMA, "presets": presets})
        return
    for entry in presets:
        of = ", ".join(map(str, entry["pipelines"] or ())) or "no pipeline"
        typer.echo(printable(f"preset {entry['name']} ({entry['path'] or 'packaged'}): {of}"))
    show_next("`omni-scaffold preset new PIPELINE` writes one to begin with")
