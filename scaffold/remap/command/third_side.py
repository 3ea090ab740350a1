"""The rollout's side of the proof, from upstream's source: does what the actor sends arrive where it belongs?"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from scaffold.remap.proof import Proof

if TYPE_CHECKING:
    from scaffold.remap.engine.lora_proof import Sync
    from scaffold.upstream import UpstreamSource


def third_side(
    proof: Proof,
    source: UpstreamSource,
    pipeline: str,
    parameters: Mapping[str, Sequence[int]],
    *,
    targets: Sequence[str] = (),
    package: Mapping[str, ast.Module] | None = None,
    sync: Sync | None = None,
    lora_hook: bool | None = None,
) -> tuple[Proof, list[str]]:
    """Return the proof with ``engine`` and ``lora`` settled as far as text settles them, and why where it does not.

    Args:
        proof: the other two sides.
        source: vllm-omni.
        pipeline: registry key or ``module:Class``.
        parameters: shape of each parameter of the training module.
        targets: what LoRA is put on; without any, ``lora`` stays None.
        package: the modules of the package by name; None where only the pipeline is known.
        sync: how the package's adapter reaches the engine, ``fold``, ``adapter`` or ``none``.
        lora_hook: whether verl-omni calls the package's hook by itself; None where nobody says.
    """
    from scaffold.remap.engine import prove_engine, prove_lora

    engine = prove_engine(source, pipeline, proof.key_map, proof.headers, parameters, package=package)
    notes = [f"engine: {engine.reason}"] if engine.reason else []
    offenders, lora_holds = list(engine.offenders), None
    if targets:
        lora = prove_lora(
            source,
            pipeline,
            targets,
            parameters,
            key_map=proof.key_map,
            headers=proof.headers,
            package=package,
            sync=sync,
            lora_hook=lora_hook,
        )
        offenders += lora.offenders
        lora_holds = lora.holds
        notes += [f"lora: {lora.reason}"] if lora.reason else []
    return proof.with_offenders(offenders, engine=engine.holds, lora=lora_holds), notes
