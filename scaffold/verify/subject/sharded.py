"""A module sharded over two processes, compared with the whole one."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from scaffold import child_process
from scaffold.reading import read_text
from scaffold.verify.child.devices import shown
from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.lora import adapted

WORLD = 2
RANK = Path(__file__).resolve().parents[1] / "child" / "rank.py"
# Float32: gradients of two equal shards are averaged, which is exact; kernels may sum in another order.
LIMIT = {"gloo": 1e-5, "nccl": 1e-4}


def measure_sharded(subject: Any, backend: str) -> Measured:
    """Shard every module of ``_no_split_modules`` and the root; compare velocity and gradients with the whole module.

    Once with all parameters trainable and once with LoRA. The ranks get different samples; the whole module gets both.

    Args:
        subject: the package.
        backend: ``gloo`` on the CPU, ``nccl`` on two GPUs.
    """
    subject.geometry  # noqa: B018  # found once, before the ranks start
    with tempfile.TemporaryDirectory() as folder:
        (_forked if backend == "gloo" else _spawned)(subject, backend, Path(folder))
        results = [_result(Path(folder, f"rank{rank}.json")) for rank in range(WORLD)]
    failed = [result["error"] for result in results if "error" in result]
    if failed:
        return Measured("", list(dict.fromkeys(failed))[:2])
    worst = max(result["worst"] for result in results)
    missed = max(result["unsharded"] for result in results)
    problems = [f"{missed} layers of _no_split_modules hold parameters that are not sharded"] if missed else []
    return Measured(
        f"{results[0]['layers']} layers sharded over {WORLD} processes: {worst:.1e} apart",
        problems,
        worst,
        LIMIT[backend],
        "relative",
        1e-6,
    )


def _result(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {"error": "a process died without a word"}
    found: dict[str, Any] = json.loads(read_text(file))
    return found


def _forked(subject: Any, backend: str, folder: Path) -> None:
    """Run the ranks in forks of this process."""
    ranks = []
    try:
        for rank in range(WORLD):
            pid = os.fork()
            if pid == 0:
                try:
                    run_rank(subject, backend, rank, folder)
                finally:
                    os._exit(0)
            ranks.append(pid)
        for pid in ranks:
            os.waitpid(pid, 0)
    finally:
        for pid in ranks:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _spawned(subject: Any, backend: str, folder: Path) -> None:
    """Run the ranks in fresh processes that see the GPUs."""
    ranks = []
    try:
        for rank in range(WORLD):
            variables = shown(child_process.environment())
            process = child_process.start(
                [sys.executable, str(RANK)], cwd=folder, variables=variables, stdin=child_process.PIPE
            )
            ranks.append(process)
            assert process.stdin is not None
            order = {"job": subject.job, "backend": backend, "rank": rank, "folder": str(folder)}
            process.stdin.write(json.dumps(order).encode())
            process.stdin.close()
        for process in ranks:
            process.wait()
    finally:
        for process in ranks:
            process.kill()


def run_rank(subject: Any, backend: str, rank: int, folder: Path) -> None:
    """Run one rank and write what it found, or why it failed, to ``rank<n>.json``."""
    found: dict[str, Any]
    try:
        found = _rank(subject, backend, rank, folder)
    except NotDrivableError as reason:
        found = {"error": str(reason)}
    except BaseException as error:
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    (folder / f"rank{rank}.json").write_text(json.dumps(found), encoding="utf-8")


def _rank(subject: Any, backend: str, rank: int, folder: Path) -> dict[str, Any]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    if backend == "gloo":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    device = torch.device("cpu") if backend == "gloo" else torch.device("cuda", rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # Before there are ranks, so that a module which asks for its rank is not compared with itself.
    wholes = [(lora, _whole(subject, device, lora)) for lora in _kinds(subject)]
    store = dist.FileStore(str(folder / "store"), WORLD)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=rank, world_size=WORLD)
    try:
        mesh = init_device_mesh(device.type, (WORLD,))
        found = [_compare(subject, mesh, device, rank, lora, whole) for lora, whole in wholes]
    finally:
        dist.destroy_process_group()
    return {
        "worst": max(entry["worst"] for entry in found),
        "layers": found[0]["layers"],
        "unsharded": max(entry["unsharded"] for entry in found),
    }


def _kinds(subject: Any) -> list[bool]:
    return [False, True] if subject.job["declared"].get("target_modules") else [False]


@dataclass
class _Whole:
    """The module in one piece: its inputs and velocities for each rank's sample, and gradients of the mean loss."""

    module: Any
    batches: list[dict[str, Any]]
    velocities: list[torch.Tensor]


def _build(subject: Any, device: torch.device, lora: bool) -> Any:
    module = adapted(subject, zero=False) if lora else subject.new_module()
    return module.to(device)


def _whole(subject: Any, device: torch.device, lora: bool) -> _Whole:
    module = _build(subject, device, lora)
    prompts = ((5, 6, 7), (9, 8, 7, 6, 5))
    batches = [_moved(subject.inputs(module, [prompt], seed=1 + i)[0], device) for i, prompt in enumerate(prompts)]
    velocities = [subject.velocity(module, batch) for batch in batches]
    sum(velocity.square().mean() for velocity in velocities).div(WORLD).backward()
    return _Whole(module, batches, [velocity.detach() for velocity in velocities])


def _compare(subject: Any, mesh: Any, device: torch.device, rank: int, lora: bool, whole: _Whole) -> dict[str, Any]:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    sharded = _build(subject, device, lora)
    names = set(sharded._no_split_modules or ())
    layers = [child for child in sharded.modules() if type(child).__name__ in names]
    if not layers:
        raise NotDrivableError(f"no module is one of _no_split_modules = {sorted(names)}")
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    found = subject.velocity(sharded, whole.batches[rank])
    found.square().mean().backward()
    worst = relative(found.detach(), whole.velocities[rank])
    unsharded = sum(any(not isinstance(p, DTensor) for p in layer.parameters()) for layer in layers)
    pairs = zip(whole.module.named_parameters(), sharded.named_parameters(), strict=True)
    for (name, one), (other_name, other) in pairs:
        if name != other_name:
            raise RuntimeError(f"{name} is called {other_name} once sharded")
        if one.grad is None or not one.grad.any():
            continue
        gathered = other.grad.full_tensor() if isinstance(other.grad, DTensor) else other.grad
        if gathered is None:
            raise RuntimeError(f"{name} gets no gradient once sharded")
        worst = max(worst, relative(gathered, one.grad))
    return {"worst": worst, "layers": len(layers), "unsharded": unsharded}


def _moved(inputs: dict[str, Any], device: torch.device) -> dict[str, Any]:
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
