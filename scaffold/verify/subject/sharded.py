"""A module sharded over two processes, compared with the whole one."""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
import tempfile
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import Any

import torch
from torch.utils._pytree import tree_map

from scaffold.files.reading import read_text
from scaffold.limits import child_process
from scaffold.verify.child.devices import shown
from scaffold.verify.formulas import relative
from scaffold.verify.measured import Measured, NotDrivableError
from scaffold.verify.subject.lora import adapted
from scaffold.verify.subject.wrapping import STRATEGIES, Strategy

WORLD = 2
RANK = Path(__file__).resolve().parents[1] / "child" / "rank.py"
# Float32: gradients of two equal shards are averaged, which is exact; kernels may sum in another order.
LIMIT = {"gloo": 1e-5, "nccl": 1e-4}
# bf16: the whole module computes the same operations in the same dtypes, so 0 is seen. One rounding that is there on
# one side only moves a velocity by 2**-9 of itself; rotary tables rounded by a wrapper moved Boogu's by 9e-3.
LIMIT_BF16 = 1e-3
# Gradients, and velocities where a strategy leads LoRA another way, may differ by four times what bf16 itself is from
# float32, value by value; they count as a fraction of that.
LIMIT_ROUNDING = 4.0
# Distance from the rollout's velocity in bf16, relative to the distance of bf16 from float32 in the same run: a correct
# port is 0 to 1.3e-4 away; one more rounding in every layer gives the whole distance, or half of it (8.8e-3 of 2.2e-2).
LIMIT_ROLLOUT = 0.1
# The same where training has diffusers' class: it rounds at other places than the engine's, each at its own. Two
# computations that are each as far from float32 are the root of two of that apart, and half more at most.
LIMIT_TWO_CLASSES = 2.1


def measure_sharded(subject: Any, backend: str, strategy: str = "fsdp2") -> Measured:
    """Shard a module and compare velocity and gradients with the whole module, whose parameters have the same dtype.

    Once with all parameters trainable and once with LoRA. The ranks get different samples; the whole module gets both.
    In bf16, where the real pipeline was recorded in it, the velocity of its steps is compared, too: a module that
    rounds more than the pipeline does, sharded or not, is then seen.

    Args:
        subject: the package.
        backend: ``gloo`` on the CPU, ``nccl`` on two GPUs.
        strategy: one of ``wrapping.STRATEGIES``.
    """
    half = STRATEGIES[strategy].dtype != torch.float32
    subject = subject.half if half else subject
    subject.geometry  # noqa: B018  # found once, before the ranks start
    if STRATEGIES[strategy].lora_only:
        subject.declared("target_modules")
    with tempfile.TemporaryDirectory() as folder:
        (_forked if backend == "gloo" else _spawned)(subject, backend, strategy, Path(folder))
        results = [_result(Path(folder, f"rank{rank}.json")) for rank in range(WORLD)]
    failed = [result["error"] for result in results if "error" in result]
    if failed:
        return Measured("", list(dict.fromkeys(failed))[:2])
    worst, where = max((result["worst"], result["where"]) for result in results)
    missed = max(result["unsharded"] for result in results)
    problems = [f"{missed} layers of _no_split_modules hold parameters that are not sharded"] if missed else []
    followed = [(apart, name, result["rounding"]) for result in results for name, apart in result["rollout"].items()]
    share = LIMIT_TWO_CLASSES if subject.loaded else LIMIT_ROLLOUT
    over = [entry for entry in followed if not entry[0] <= share * entry[2]]
    if over:
        apart, name, rounding = over[0]
        allowed = share * rounding
        problems.append(f"{name} is {apart:.1e} from the rollout's own in bf16, of which {allowed:.1e} is rounding")
    return Measured(
        f"{results[0]['layers']} layers sharded over {WORLD} processes: {worst:.1e} apart"
        + (f", {where}" if worst else "")
        + (f"; {max(entry[0] for entry in followed):.1e} from the rollout in bf16" if followed else "")
        + (f"; bf16 itself is {results[0]['rounding']:.1e} from float32" if half else ""),
        problems,
        worst,
        LIMIT_BF16 if half else LIMIT[backend],
        "relative",
        LIMIT_BF16 / LIMIT_ROUNDING if half else 1e-6,
    )


def _result(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {"error": "a process died without a word"}
    found: dict[str, Any] = json.loads(read_text(file))
    return found


def _forked(subject: Any, backend: str, strategy: str, folder: Path) -> None:
    """Run the ranks in forks of this process."""
    ranks = []
    try:
        for rank in range(WORLD):
            pid = os.fork()
            if pid == 0:
                try:
                    run_rank(subject, backend, strategy, rank, folder)
                finally:
                    os._exit(0)
            ranks.append(pid)
        for pid in ranks:
            os.waitpid(pid, 0)
    finally:
        for pid in ranks:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _spawned(subject: Any, backend: str, strategy: str, folder: Path) -> None:
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
            order["strategy"] = strategy
            process.stdin.write(json.dumps(order).encode())
            process.stdin.close()
        for process in ranks:
            process.wait()
    finally:
        for process in ranks:
            process.kill()


def run_rank(subject: Any, backend: str, strategy: str, rank: int, folder: Path) -> None:
    """Run one rank and write what it found, or why it failed, to ``rank<n>.json``."""
    found: dict[str, Any]
    try:
        found = _rank(subject, backend, STRATEGIES[strategy], rank, folder)
    except NotDrivableError as reason:
        found = {"error": str(reason)}
    except BaseException as error:
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
    (folder / f"rank{rank}.json").write_text(json.dumps(found), encoding="utf-8")


def _rank(subject: Any, backend: str, strategy: Strategy, rank: int, folder: Path) -> dict[str, Any]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    if backend == "gloo":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    device = torch.device("cpu") if backend == "gloo" else torch.device("cuda", rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # Built before the process group exists, so that a module that depends on its rank is not compared with itself.
    wholes = [(lora, _unsharded(subject, strategy, device, lora)) for lora in _kinds(subject, strategy)]
    store = dist.FileStore(str(folder / "store"), WORLD)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=rank, world_size=WORLD)
    try:
        mesh = init_device_mesh(device.type, (WORLD,))
        found = [_compare(subject, strategy, mesh, device, rank, lora, whole) for lora, whole in wholes]
        rounding = max(whole.rounding.get(str(rank), 0.0) for _, whole in wholes)
        followed = _from_rollout(subject, strategy, mesh, device, rank)
    finally:
        dist.destroy_process_group()
    return {
        **max(found, key=lambda entry: entry["worst"]),
        "layers": found[0]["layers"],
        "unsharded": max(entry["unsharded"] for entry in found),
        "rounding": rounding,
        "rollout": followed,
    }


def _from_rollout(subject: Any, strategy: Strategy, mesh: Any, device: torch.device, rank: int) -> dict[str, float]:
    """Return the distance of the guided velocities from the rollout's, whole and sharded; empty without a recording."""
    sample = subject.rolled_out(rank)
    found: dict[str, float] = {}
    if strategy.dtype == torch.float32 or sample is None:
        return found
    for name in ("the velocity of the whole module", "the velocity once sharded"):
        # A new adapter changes nothing: its second matrix is zero.
        module = adapted(subject, dtype=strategy.dtype) if strategy.lora_only else subject.new_module()
        module.to(device)
        if found:
            names = set(module._no_split_modules or ())
            layers = [child for child in module.modules() if type(child).__name__ in names]
            module = strategy.wrap(_as_engine(module), layers, mesh)
        else:
            _held_in(module, strategy.dtype)
        again = computes_cached_tokens(subject.spec)
        steps = range(len(sample["timesteps"])) if again else (0, len(sample["timesteps"]) // 2)
        seen = {step: sample["velocities"][step] for step in steps if sample["velocities"][step] is not None}
        if not seen:
            return found
        with torch.no_grad():
            apart = [
                relative(subject.guided_velocity(module, sample, step), velocity.to(device))
                for step, velocity in seen.items()
            ]
        found[name] = median_low(apart) if again else max(apart)
    return found


def computes_cached_tokens(spec: dict[str, Any]) -> bool:
    """Whether training computes tokens again that the rollout took from its cache: each call as the loop's first.

    Sums of the two may go in another order then, and a value of bf16 that lies between two falls to the other side in
    one step or another: HunyuanImage-3.0's velocity is 0 away in five steps of six and 1.9e-2 in one. A rounding more
    in every layer moves every step, so that the middle one of all steps tells them apart.
    """
    return bool(spec.get("port", {}).get("first"))


def _kinds(subject: Any, strategy: Strategy) -> list[bool]:
    if strategy.lora_only:
        return [True]
    return [False, True] if subject.job["declared"].get("target_modules") else [False]


@dataclass
class _Unsharded:
    """The whole module: inputs of each rank's sample, velocities, gradients of the mean loss.

    ``rounding`` is the distance of each, by name, from its float32 value.
    """

    batches: list[dict[str, Any]]
    found: dict[str, torch.Tensor]
    rounding: dict[str, float]


def _build(subject: Any, device: torch.device, lora: bool, dtype: torch.dtype | None = None) -> Any:
    """With LoRA the engine holds the base weights in ``dtype``; without, it trains float32."""
    module = adapted(subject, zero=False, dtype=dtype) if lora else subject.new_module()
    return module.to(device)


def _unsharded(subject: Any, strategy: Strategy, device: torch.device, lora: bool) -> _Unsharded:
    module = _build(subject, device, lora)
    prompts = ((5, 6, 7), (9, 8, 7, 6, 5))
    # A schedule begins at 1, which bfloat16 holds exactly; recorded calls of two steps may be unlike.
    step = 0 if subject.spec.get("port") else 1
    batches = [
        _moved(subject.inputs(module, [prompt], seed=1 + i, step=step)[0], device) for i, prompt in enumerate(prompts)
    ]
    exact = _results(subject, module, batches, torch.float32)
    if strategy.dtype == torch.float32:
        return _Unsharded(batches, exact, {})
    _held_in(module, strategy.dtype)
    found = _results(subject, module, batches, strategy.dtype)
    least = torch.finfo(strategy.dtype).eps / 2
    return _Unsharded(batches, found, {name: max(least, relative(found[name], exact[name])) for name in found})


def _held_in(module: Any, dtype: torch.dtype) -> None:
    """Give parameters alone a dtype, as the wrappers do it: buffers keep theirs."""
    for parameter in module.parameters():
        parameter.data = parameter.data.to(dtype)


def _as_engine(module: Any) -> Any:
    """LoRA in float32 does not cast its input, as the engine sets it."""
    for child in module.modules():
        if hasattr(child, "cast_input_dtype_enabled"):
            child.cast_input_dtype_enabled = False
    return module


def _results(subject: Any, module: Any, batches: list[dict[str, Any]], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Velocity of each batch by its number, and the mean gradient of each parameter that has one by its name."""
    results: dict[str, torch.Tensor] = {}
    for number, batch in enumerate(batches):
        module.zero_grad()
        velocity = _velocity(subject, module, batch, dtype)
        velocity.square().mean().backward()  # type: ignore[no-untyped-call,unused-ignore]
        results[str(number)] = velocity.detach()
        for name, parameter in module.named_parameters():
            if parameter.grad is not None and parameter.grad.any():
                results[name] = results.get(name, 0.0) + parameter.grad.float() / WORLD
    return results


def _velocity(subject: Any, module: Any, batch: dict[str, Any], dtype: torch.dtype) -> torch.Tensor:
    """Velocity of the whole module; where its code needs the casts that a wrapper makes, with those."""
    found: torch.Tensor
    try:
        found = subject.velocity(module, batch)
        return found
    except RuntimeError as error:
        if dtype == torch.float32 or "dtype" not in str(error):
            raise
    names = set(module._no_split_modules or ())
    units = [child for child in module.modules() if child is module or type(child).__name__ in names]
    for several in (units[:1], units):
        hooks = [
            unit.register_forward_pre_hook(lambda _, args, kwargs: _cast((args, kwargs), dtype), with_kwargs=True)
            for unit in several
        ]
        try:
            found = subject.velocity(module, batch)
            return found
        except RuntimeError:
            if several is units:
                raise
        finally:
            for hook in hooks:
                hook.remove()
    raise AssertionError


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return tree_map(
        lambda leaf: leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf, value
    )


def _compare(
    subject: Any, strategy: Strategy, mesh: Any, device: torch.device, rank: int, lora: bool, whole: _Unsharded
) -> dict[str, Any]:
    """Return the worse result of two dtypes of the base weights: the wrapper's compute dtype, and float32.

    The first detects mixed parameter dtypes, the second a gradient that FSDP1 leaves unreduced.
    """
    dtypes = (strategy.dtype,) if strategy.dtype == torch.float32 or not lora else (strategy.dtype, None)
    found = [_compare_in(subject, strategy, mesh, device, rank, lora, whole, dtype) for dtype in dtypes]
    return max(found, key=lambda one: (one["unsharded"], one["worst"]))


def mixed_dtypes(module: Any, layers: list[Any]) -> str | None:
    """The first two parameters of a unit with two dtypes, a layer or what is in none, with these; None without one.

    Frozen ones alone: trainable ones, such as LoRA matrices, may have a unit of their own.
    """
    of_layers = {id(parameter) for layer in layers for parameter in layer.parameters()}
    names = {id(parameter): name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    rest = [parameter for parameter in module.parameters() if id(parameter) not in of_layers]
    for unit in (*(list(layer.parameters()) for layer in layers), rest):
        found = {parameter.dtype: names[id(parameter)] for parameter in unit if id(parameter) in names}
        if len(found) > 1:
            told = [f"{name} is {str(dtype).removeprefix('torch.')}" for dtype, name in found.items()]
            return " and ".join(told[:2])
    return None


def _compare_in(
    subject: Any,
    strategy: Strategy,
    mesh: Any,
    device: torch.device,
    rank: int,
    lora: bool,
    whole: _Unsharded,
    dtype: torch.dtype | None,
) -> dict[str, Any]:
    from torch.distributed.tensor import DTensor

    module = _build(subject, device, lora, dtype)
    if strategy.dtype != torch.float32:
        _as_engine(module)
    names = set(module._no_split_modules or ())
    layers = [child for child in module.modules() if type(child).__name__ in names]
    if not layers:
        raise NotDrivableError(f"no module is one of _no_split_modules = {sorted(names)}")
    trained = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    mixed = mixed_dtypes(module, layers)
    try:
        root = strategy.wrap(module, layers, mesh)
        if subject.loaded:
            subject.training.adopt(root)  # as the first micro-batch of a training does
        found = subject.velocity(root, whole.batches[rank])
        found.square().mean().backward()
    except Exception as error:
        if mixed is None or "uniform" not in str(error):
            raise
        raise RuntimeError(f"{mixed}, and a sharded unit has one: {error}") from error
    worst, where = 0.0, ""
    unsharded = sum(
        any(not isinstance(p, DTensor) and not hasattr(p, "_local_shard") for p in layer.parameters())
        for layer in layers
    )
    gradients = strategy.gradients(root)
    lost = [name for name in trained if name not in gradients]
    if lost:
        raise RuntimeError(f"{lost[0]} is not a parameter of that name once sharded")
    gradients[str(rank)] = found.detach()
    for name, expected in whole.found.items():
        if name.isdigit() and name != str(rank):
            continue  # another rank's velocity
        gathered = gradients[name]
        if gathered is None:
            raise RuntimeError(f"{name} gets no gradient once sharded")
        apart, velocity = relative(gathered, expected), name.isdigit()
        if strategy.dtype != torch.float32 and not (velocity and strategy.same_operations):
            # Sums of gradients in another order, or LoRA led another way: no more than bf16 itself gives.
            apart *= LIMIT_BF16 / (LIMIT_ROUNDING * whole.rounding[name])
        if apart > worst:
            worst, where = apart, "the velocity" if velocity else f"the gradient of {name}"
    if worst > LIMIT_BF16 and strategy.casts:
        where += _moved_by_cast(subject, _build(subject, device, lora), whole.batches[rank], names, strategy.dtype)
    return {"worst": worst, "where": where, "layers": len(layers), "unsharded": unsharded}


def _moved_by_cast(subject: Any, module: Any, batch: dict[str, Any], names: set[str], dtype: torch.dtype) -> str:
    """Which input, given to the whole module as a wrapper casts it, moves the velocity most; empty where none does."""
    _held_in(module, dtype)
    units: dict[type, list[Any]] = {type(module): [module]}
    for child in module.modules():
        if type(child).__name__ in names:
            units.setdefault(type(child), []).append(child)
    moved = {"": LIMIT_BF16}
    with torch.no_grad():
        before = _velocity(subject, module, batch, dtype)
        for kind, several in units.items():
            form = inspect.signature(several[0].forward)
            for name in form.parameters:

                def cast(
                    _: Any, args: Any, kwargs: Any, *, form: inspect.Signature = form, name: str = name
                ) -> tuple[Any, Any]:
                    bound = form.bind(*args, **kwargs)
                    value = bound.arguments.get(name)
                    if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
                        bound.arguments[name] = value.to(dtype).float()
                    return bound.args, bound.kwargs

                hooks = [unit.register_forward_pre_hook(cast, with_kwargs=True) for unit in several]
                with suppress(RuntimeError, TypeError):
                    apart = relative(_velocity(subject, module, batch, dtype), before)
                    moved[f"{name} of {kind.__name__}.forward"] = apart
                for hook in hooks:
                    hook.remove()
    most = max(moved, key=lambda name: moved[name])
    told = f": the wrapper casts {most} from float32 to bfloat16, which alone moves the velocity by {moved[most]:.1e}"
    return told if most else ""


def _moved(inputs: dict[str, Any], device: torch.device) -> dict[str, Any]:
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in inputs.items()}
