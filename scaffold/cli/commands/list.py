"""All pipelines of a version, and what `new` makes of each."""

from __future__ import annotations

from scaffold.cli.answer import show_json, show_next
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
    from scaffold.terminal.progress import progress_bar
    from scaffold.upstream import DEFAULT_VERSION, locate

    gc.enable()  # frees the garbage of each pipeline before the next
    source = locate(vllm_omni)
    with progress_bar("pipelines") as progress:
        table = cached_overview(source, vllm_omni, progress)
    if format is Format.json:
        show_json(table)
        return
    from scaffold.grade.overview_text import print_overview

    print_overview(table, source.label)
    of = "" if vllm_omni in (None, DEFAULT_VERSION) else f" --vllm-omni {shlex.quote(vllm_omni)}"
    new = f"`omni-scaffold new MODEL --pipeline PIPELINE{of} --out DIR`"
    show_next(f"`omni-scaffold inspect PIPELINE{of}` has the answers for one, {new} renders it")
