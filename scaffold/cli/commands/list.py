"""All pipelines of a version, and what `new` makes of each."""

from __future__ import annotations

import typer

from scaffold.cli.answer import show_json
from scaffold.cli.options import AnswerFormat, Format, VllmOmni

ORDER = 20


def list(vllm_omni: VllmOmni = None, format: AnswerFormat = Format.text) -> None:
    """List the pipelines of a release and what `new` makes of each.

    Verdict, grade, modality, prompt, guidance, what is left to write.

    \b
    Example:
      omni-scaffold list --vllm-omni 0.30.0
    """
    import gc
    import shlex

    from scaffold.grade.overview_cache import cached_overview
    from scaffold.printable import printable
    from scaffold.progress import VOICE, progress_bar
    from scaffold.upstream import DEFAULT_VERSION, locate

    gc.enable()  # one pipeline after the other: what the last one left goes
    source = locate(vllm_omni)
    with progress_bar("pipelines") as progress:
        table = cached_overview(source, vllm_omni, progress)
    if format is Format.json:
        show_json(table)
        return
    from scaffold.grade.overview_text import print_overview

    print_overview(table, source.label)
    if VOICE.quiet:
        return
    of = "" if vllm_omni in (None, DEFAULT_VERSION) else f" --vllm-omni {printable(shlex.quote(vllm_omni))}"
    new = f"`omni-scaffold new MODEL --pipeline PIPELINE{of} --out DIR`"
    typer.echo(f"\nnext: `omni-scaffold inspect PIPELINE{of}` has the answers for one, {new} renders it")
