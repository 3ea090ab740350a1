"""The LoRA targets of a package whose denoiser is ported: which layers they name, in training and in the engine."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from scaffold.checkpoint import CheckpointHeaders
from scaffold.checkpoint.quoting import quoted
from scaffold.errors import RefusedError, ScaffoldError
from scaffold.port.linears import ANY, Layout, find_layout
from scaffold.remap.command.package import Package
from scaffold.remap.key_map import KeyMap
from scaffold.remap.nearest import nearest
from scaffold.remap.proof import Offender, Proof, prove

if TYPE_CHECKING:
    from scaffold.inspect import Report
    from scaffold.upstream import UpstreamSource

CHECK = "lora"
HOOK = "map_lora_update_to_engine"
# Of what is left to write: without it nothing places the checkpoint's keys.
KEYS = "key_map"
Path = tuple[str, ...]


def prove_ported(
    package: Package, targets: Sequence[str], source: UpstreamSource | None, report: Report | None, why: str
) -> tuple[Proof, list[str]]:
    """Return a proof of the LoRA targets alone, and what the reader should know.

    No table of rules stands between the checkpoint's keys and the module: the pipeline's own loader is ported, and
    `verify` runs it. So nothing is said of the other checks.

    Args:
        package: one with a ported denoiser.
        targets: what LoRA is to be put on.
        source: vllm-omni as the package was made for; None where it cannot be had.
        report: of its pipeline.
        why: it cannot be had.

    Raises:
        RefusedError: there is nothing that could be proved.
    """
    empty = prove(KeyMap(()), CheckpointHeaders("no checkpoint", (), ()), {})
    proof = replace(empty, stated=False)
    left = [entry for entry in package.spec.value("grade.missing") or [] if entry.get("key") == KEYS]
    notes = (
        [f"keys unknown: {left[0].get('what')} is still to be written"]
        if left
        else ["keys: the pipeline's own loader is ported and places them; `omni-scaffold verify` runs it"]
    )
    mine = _layout(package)
    notes += [f"lora: {name} is a library's class, of which nobody knows here what it holds" for name in mine.unread]
    sync = package.spec.value("lora.sync")
    if sync == "none" or not targets:
        said = "it refuses LoRA" if sync == "none" else "no LoRA targets are named"
        raise RefusedError(
            f"{package.folder}: nothing can be proved: the pipeline's own code places the keys, and {said}",
            hint="name targets with --lora-targets NAME,NAME" if sync != "none" else "`omni-scaffold verify` runs it",
        )
    offenders = [*_of_training(mine, targets), *_of_adapter(package, str(sync))]
    named = [path for path in mine.linears if any(names(target, path) for target in targets)]
    if source is None or report is None:
        notes.append(f"lora unknown: {why}")
    else:
        offenders += _of_engine(source, report, named)
    bare = [path for path in mine.linears if path not in named]
    if bare:
        notes.append(f"lora: {len(bare)} linear layers in the layers have no target, {_shown(bare[0])} first")
    lists = ", ".join(mine.lists)
    blind = [target for target in targets if not any(names(target, path) for path in (*mine.linears, *mine.outside))]
    if blind and mine.unread:
        notes.append(f"lora unknown: {quoted(blind[0])} names no layer that the text shows")
    settled = source is not None and not offenders and not blind
    return proof.with_offenders(offenders, lora=True if settled else None), [
        *notes,
        f"lora: {len(targets)} targets name {len(named)} of {len(mine.linears)} linear layers in {lists}",
    ]


def names(target: str, path: Path) -> bool:
    """Whether PEFT takes a target for the name of a layer, of which an index may be unknown."""
    end = tuple(target.split("."))
    part = path[-len(end) :]
    return len(part) == len(end) and all(a == b or (b == ANY and a.isdigit()) for a, b in zip(end, part, strict=True))


def _layout(package: Package) -> Layout:
    entry = package.spec.value("port.entry")
    file = f"{package.value('names.model')}_denoiser"
    tree = package.modules().get(file)
    if not isinstance(entry, str) or tree is None:
        raise ScaffoldError(f"{package.folder} has no {file}.py", hint="its denoiser is still to be ported")
    return find_layout(ast.unparse(tree), entry, tuple(package.spec.value("port.layer_classes") or ()))


def _of_training(layout: Layout, targets: Sequence[str]) -> list[Offender]:
    found = []
    known = sorted({".".join(path[-length:]) for path in layout.linears for length in (1, 2) if len(path) >= length})
    for target in targets:
        outside = [path for path in layout.outside if names(target, path)]
        if not any(names(target, path) for path in layout.linears) and not (outside or layout.unread):
            like = nearest(target, known)
            meant = f"; the nearest name is {quoted(like)}" if like else ""
            message = f"no linear layer of the ported module is called {quoted(target)}{meant}"
            found.append(Offender(CHECK, target, message))
        elif outside and layout.lists:
            message = (
                f"the LoRA target {quoted(target)} names {_shown(outside[0])}, too, which is in no list of layers: what"
                " the actor sends layer by layer leaves it out"
            )
            found.append(Offender(CHECK, target, message))
    return found


def _of_adapter(package: Package, sync: str) -> list[Offender]:
    adapter = package.modules().get("vllm_omni_rollout_adapter")
    defined = adapter is not None and any(
        isinstance(node, ast.FunctionDef) and node.name == HOOK for node in ast.walk(adapter)
    )
    if sync == "fold" and not defined:
        message = f"the rollout adapter has no {HOOK}, by which the package folds LoRA into the engine's weights"
        return [Offender(CHECK, HOOK, message)]
    if sync == "missing":
        return [Offender(CHECK, HOOK, "how a LoRA update reaches the pipeline's layers is still to be written")]
    return []


def _of_engine(source: UpstreamSource, report: Report, named: Sequence[Path]) -> list[Offender]:
    """Layers of training that the engine's denoiser, as its text says, does not have under that name."""
    from scaffold.grade.decide import port_of

    port, _ = port_of(source, report)
    if port is None:
        return [Offender(CHECK, report.upstream.pipeline, f"{source.label} does not say which class the denoiser is")]
    layout = find_layout(port.source, port.entry, port.layer_classes)
    known = {*layout.linears, *layout.outside}
    return [
        Offender(CHECK, _shown(path), f"the engine's {port.entry} has no linear layer {_shown(path)}")
        for path in named
        if path not in known
    ]


def _shown(path: Path) -> str:
    return quoted(".".join(path))
