"""A trainer's checkpoint becomes a release again: its files, names and fused layers, or the adapter alone."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from flow_grpo_runtime import export
from flow_grpo_runtime.checkpoint import Checkpoint, pieces_of
from flow_grpo_runtime.export import Piece
from flow_grpo_runtime.released import ReleasedWeights, Rule
from flow_grpo_runtime.trained import TrainedWeights

FILE = "transformer/model.safetensors"
RULES = (
    Rule("split", ("qkv.weight",), ("q.weight", "k.weight")),
    Rule("join", ("gate.weight", "up.weight"), ("gate_up.weight",)),
    Rule("rename", ("net.",), ("out.",)),
    Rule("drop", ("vision.",), (), reason="not trained"),
)
Release = tuple[Path, dict[str, Tensor]]


def net(folder: str) -> dict[str, Tensor]:
    return {"q.weight": torch.empty(4, 6), "k.weight": torch.empty(2, 6)}


class Net:
    """A training module that knows its release by rules."""

    weights = ReleasedWeights("Net", RULES, (FILE,), "saved.safetensors", parameters=net)

    @classmethod
    def released_pieces(cls, path: str) -> Any:
        return cls.weights.pieces(path)

    @classmethod
    def unplaced_parameters(cls, path: str, names: Collection[str]) -> set[str]:
        return set()


@pytest.fixture
def release(tmp_path: Path) -> Release:
    torch.manual_seed(0)
    tensors = {
        "qkv.weight": torch.randn(6, 6).bfloat16(),
        "gate.weight": torch.randn(3, 6),
        "up.weight": torch.randn(3, 6),
        "net.weight": torch.randn(5, 6),
        "vision.weight": torch.randn(2, 2),
    }
    folder = tmp_path / "release"
    (folder / "transformer").mkdir(parents=True)
    save_file(tensors, folder / FILE, metadata={"format": "pt", "who": "released"})
    (folder / "config.json").write_text('{"model_type": "net"}')
    save_file({"vae": torch.randn(3)}, folder / "vae.safetensors")
    return folder, tensors


def parameters(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those of the training module for these tensors of a release, in float32."""
    q, k = tensors["qkv.weight"].float().split([4, 2])
    joined = torch.cat([tensors["gate.weight"], tensors["up.weight"]])
    return {"q.weight": q, "k.weight": k, "gate_up.weight": joined, "out.weight": tensors["net.weight"].clone()}


def save(
    folder: Path, state: Mapping[str, Tensor], *, ranks: int = 1, lora: bool = False, hybrid: bool = False
) -> Path:
    """A step as VeRL saves it: a file a rank, of shards where there are several."""
    place = folder / "global_step_3" / "actor"
    place.mkdir(parents=True)
    for rank in range(ranks):
        held: dict[str, Any] = {name: tensor.clone() for name, tensor in state.items()}
        if ranks > 1:
            dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
            shape = (2, ranks // 2) if hybrid else (ranks,)
            mesh = init_device_mesh("cpu", shape)
            placements = (*(Replicate() for _ in shape[1:]), Shard(0))
            for name, tensor in state.items():
                parts = torch.chunk(tensor, shape[-1])
                own = rank % shape[-1]
                local = parts[own] if own < len(parts) else tensor[:0]
                held[name] = DTensor.from_local(
                    local.clone(), mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
                )
            dist.destroy_process_group()
        torch.save(held, place / f"model_world_size_{ranks}_rank_{rank}.pt")
    (place / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": ranks}))
    if lora:
        (place / "lora_train_meta.json").write_text(json.dumps({"r": 2, "lora_alpha": 4, "task_type": "CAUSAL_LM"}))
    (folder / "latest_checkpointed_iteration.txt").write_text("3")
    return folder


@pytest.mark.parametrize(("ranks", "hybrid"), [(1, False), (2, False), (3, False), (4, True)])
def test_full_parameters_take_their_places_in_a_copy(
    release: Release, tmp_path: Path, ranks: int, hybrid: bool
) -> None:
    folder, tensors = release
    state = parameters(tensors)
    state["q.weight"] = state["q.weight"] + 0.5
    state["gate_up.weight"] = state["gate_up.weight"] * 2
    weights = TrainedWeights(str(save(tmp_path / "run", state, ranks=ranks, hybrid=hybrid)))
    moved = export.export_weights(Net, weights, str(folder), str(tmp_path / "out"))
    found = load_file(tmp_path / "out" / FILE)
    assert {name: tensor.dtype for name, tensor in found.items()} == {n: t.dtype for n, t in tensors.items()}
    assert torch.equal(found["qkv.weight"], torch.cat([state["q.weight"], state["k.weight"]]).bfloat16())
    assert torch.equal(torch.cat([found["gate.weight"], found["up.weight"]]), state["gate_up.weight"])
    for name in ("net.weight", "vision.weight"):
        assert torch.equal(found[name], tensors[name])
    for name in ("config.json", "vae.safetensors"):
        assert (tmp_path / "out" / name).read_bytes() == (folder / name).read_bytes()
    size = 8 + int.from_bytes((folder / FILE).read_bytes()[:8], "little")
    assert (tmp_path / "out" / FILE).read_bytes()[:size] == (folder / FILE).read_bytes()[:size]
    far = {entry.key: entry.relative for entry in moved}
    assert far["gate.weight"] == pytest.approx(1.0)
    assert (far["net.weight"], far["qkv.weight"] > 0, "vision.weight" in far) == (0.0, True, False)


def adapter(state: Mapping[str, Tensor], *, base: bool, zero: bool = False) -> dict[str, Tensor]:
    """The state under LoRA on q and gate_up, with the base or without, as VeRL can save it."""
    made: dict[str, Tensor] = {}
    for name, tensor in state.items() if base else ():
        layer = name.removesuffix(".weight")
        made[f"{layer}.base_layer.weight" if layer in ("q", "gate_up") else name] = tensor.bfloat16()
    for layer in ("q", "gate_up"):
        rows = state[f"{layer}.weight"].shape[0]
        made[f"{layer}.lora_A.default.weight"] = torch.randn(2, 6)
        made[f"{layer}.lora_B.default.weight"] = torch.zeros(rows, 2) if zero else torch.randn(rows, 2)
    return made


@pytest.mark.parametrize("base", [True, False])
@pytest.mark.parametrize("ranks", [1, 2])
def test_lora_is_merged_into_the_release(release: Release, tmp_path: Path, base: bool, ranks: int) -> None:
    folder, tensors = release
    state = parameters(tensors)
    lora = adapter(state, base=base)
    weights = TrainedWeights(str(save(tmp_path / "run", lora, ranks=ranks, lora=True)))
    moved = export.export_weights(Net, weights, str(folder), str(tmp_path / "out"))
    found = load_file(tmp_path / "out" / FILE)
    for layer in ("q", "gate_up"):
        state[f"{layer}.weight"] = state[f"{layer}.weight"] + 2.0 * (
            lora[f"{layer}.lora_B.default.weight"] @ lora[f"{layer}.lora_A.default.weight"]
        )
    assert torch.equal(found["qkv.weight"], torch.cat([state["q.weight"], state["k.weight"]]).bfloat16())
    assert torch.allclose(torch.cat([found["gate.weight"], found["up.weight"]]), state["gate_up.weight"], rtol=1e-6)
    assert torch.equal(found["net.weight"], tensors["net.weight"])
    assert {entry.key for entry in moved} == {"qkv.weight", "gate.weight", "up.weight"}


def test_the_adapter_alone_is_peft_s(release: Release, tmp_path: Path) -> None:
    from peft import LoraConfig

    lora = adapter(parameters(release[1]), base=False)
    norms = export.export_adapter(
        TrainedWeights(str(save(tmp_path / "run", lora, lora=True))), "net", str(tmp_path / "a")
    )
    config = LoraConfig.from_pretrained(str(tmp_path / "a"))
    assert (config.r, config.lora_alpha, config.target_modules) == (2, 4, {"q", "gate_up"})
    found = load_file(tmp_path / "a/adapter_model.safetensors")
    assert torch.equal(found["base_model.model.q.lora_B.weight"], lora["q.lora_B.default.weight"])
    assert norms.keys() == {"q", "gate_up"}


def test_a_class_of_diffusers_is_exported_and_diffusers_loads_what_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    diffusers = pytest.importorskip("diffusers")
    from peft import LoraConfig, PeftModel

    package = tmp_path / "flux_flow"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "diffusers_training_adapter.py").write_text(
        "from flow_grpo_runtime.diffusers_module import DiffusersTraining\n\n\n"
        "class Flux(DiffusersTraining):\n    pass\n\n\nclass FluxForAnother(Flux):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.manual_seed(0)
    kind: Any = diffusers.FluxTransformer2DModel
    sizes = {"num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2}
    module = kind(in_channels=4, joint_attention_dim=8, pooled_projection_dim=8, axes_dims_rope=(4, 4, 8), **sizes)
    folder, run = tmp_path / "release", tmp_path / "run"
    module.save_pretrained(folder / "transformer", max_shard_size="40KB")
    assert (folder / "transformer/diffusion_pytorch_model.safetensors.index.json").is_file()
    module.add_adapter(LoraConfig(r=2, lora_alpha=4, target_modules=["to_q", "proj_mlp"]))
    for name, parameter in module.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    save(run, module.state_dict(), lora=True)
    given = ["--package", "flux_flow", "--from", str(run), "--base", str(folder)]
    assert export.main([*given, "--out", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    assert "3 tensors that training holds, 3 moved" in capsys.readouterr().out
    assert export.main([*given, "--out", str(tmp_path / "lora"), "--adapter"]) == 0
    (folder / "transformer/diffusion_pytorch_model.fp16.safetensors").write_bytes(b"")  # not what the index names

    def loaded() -> Any:
        return kind.from_pretrained(folder / "transformer")

    adapted = loaded()
    adapted.load_lora_adapter(tmp_path / "lora", weight_name="pytorch_lora_weights.safetensors")
    inputs = {
        "hidden_states": torch.randn(1, 6, 4),
        "encoder_hidden_states": torch.randn(1, 3, 8),
        "pooled_projections": torch.randn(1, 8),
        "timestep": torch.tensor([0.5]),
        "img_ids": torch.zeros(6, 3),
        "txt_ids": torch.zeros(3, 3),
    }
    with torch.no_grad():
        trained = module(**inputs)[0]
        assert (loaded()(**inputs)[0] - trained).abs().max() > 0.01
        for again in (
            kind.from_pretrained(tmp_path / "out/transformer"),
            adapted,
            PeftModel.from_pretrained(loaded(), tmp_path / "lora"),
        ):
            assert torch.allclose(again(**inputs)[0], trained, atol=1e-6)

    full = {name: tensor + 1 for name, tensor in loaded().state_dict().items()}
    save(tmp_path / "full", {**full, "another.weight": torch.ones(2)})
    given[3] = str(tmp_path / "full")
    assert export.main([*given, "--out", str(tmp_path / "third")]) == 2
    assert "'another.weight' and 0 more of the checkpoint have no tensor in the release" in capsys.readouterr().err


def same(state: dict[str, Tensor], tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], bool]:
    return state, False


def zero(state: dict[str, Tensor], tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], bool]:
    return adapter(state, base=True, zero=True), True


def another(state: dict[str, Tensor], tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], bool]:
    return adapter({name: tensor + 1 for name, tensor in state.items()}, base=True), True


def wide(state: dict[str, Tensor], tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], bool]:
    return {**state, "out.weight": torch.randn(6, 6)}, False


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (same, "none of 4 tensors differs"),
        (zero, "none of 3 tensors differs"),
        (another, "--base is another release"),
        (wide, r"is \(5, 6\), the checkpoint's out.weight \(6, 6\)"),
    ],
)
def test_what_makes_no_trained_release_is_refused_and_leaves_nothing(
    release: Release, tmp_path: Path, change: Callable[..., tuple[dict[str, Tensor], bool]], message: str
) -> None:
    folder, tensors = release
    state, lora = change(parameters(tensors), tensors)
    weights = TrainedWeights(str(save(tmp_path / "run", state, lora=lora)))
    with pytest.raises(ValueError, match=message):
        export.export_weights(Net, weights, str(folder), str(tmp_path / "out"))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("out")]
    if change is zero:
        with pytest.raises(ValueError, match="lora_B is zero in all 2 layers"):
            export.export_adapter(weights, "net", str(tmp_path / "out"))


def test_a_step_that_was_not_saved_whole_is_told(release: Release, tmp_path: Path) -> None:
    run = save(tmp_path / "run", parameters(release[1]), ranks=2)
    shard = run / "global_step_3/actor/model_world_size_2_rank_1.pt"
    shard.write_bytes(shard.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"rank_1.pt cannot be read"):
        TrainedWeights(str(run))
    shard.unlink()
    with pytest.raises(FileNotFoundError, match=r"rank_1.pt is missing: the checkpoint is incomplete"):
        TrainedWeights(str(run / "global_step_3"))
    (run / "latest_checkpointed_iteration.txt").write_text("")
    with pytest.raises(FileNotFoundError, match="names no step"):
        TrainedWeights(str(run))
    with pytest.raises(FileNotFoundError, match="is no checkpoint of the trainer"):
        TrainedWeights(str(tmp_path))


def test_a_file_outside_of_the_release_is_not_written(release: Release, tmp_path: Path) -> None:
    class Outside(Net):
        @classmethod
        def released_pieces(cls, path: str) -> Any:
            return {("../other.safetensors", "q"): [Piece("q.weight")]}

    weights = TrainedWeights(str(save(tmp_path / "run", {"q.weight": torch.ones(4, 6)})))
    with pytest.raises(ValueError, match=r"reads \.\./other.safetensors, which does not lie in the release"):
        export.export_weights(Outside, weights, str(release[0]), str(tmp_path / "out"))


def test_rows_of_a_tensor_have_their_places() -> None:
    checkpoint = Checkpoint(keys={"out": (FILE, "o")}, cut={"q": (FILE, "qkv", [(0, 2), (6, 2)])})
    assert pieces_of(checkpoint) == {
        (FILE, "o"): [Piece("out")],
        (FILE, "qkv"): [Piece("q", 0, 0, 2, 0), Piece("q", 0, 2, 2, 6)],
    }


def test_the_command_line_says_what_is_wrong_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--package", "a.b", "--from", str(tmp_path), "--base", str(tmp_path / "no"), "--out", str(tmp_path / "o")]
    assert export.main(given) == 2
    assert capsys.readouterr().err == f"error: there is no release {tmp_path / 'no'}\n"


def test_a_package_is_exported_from_the_command_line(
    release: Release, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, tensors = release
    package = tmp_path / "net_flow"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net_model.py").write_text(
        f"from {__name__} import Net as Base\n\n\nclass Net(Base):\n    pass\n", encoding="utf-8"
    )
    (package / "other_model.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    state = parameters(tensors)
    state["q.weight"] = state["q.weight"] + 0.5
    run = save(tmp_path / "run", state)
    given = ["--package", "net_flow", "--from", str(run), "--base", str(folder)]
    assert export.main([*given, "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(f"{FILE}: qkv.weight moved by")
    assert out[-1] == f"4 tensors that training holds, 1 moved, 3 not; written to {tmp_path / 'out'}"
    assert export.main([*given, "--out", str(tmp_path / "again"), "--json"]) == 0
    assert [entry["key"] for entry in json.loads(capsys.readouterr().out)["tensors"]] == [
        "gate.weight",
        "net.weight",
        "qkv.weight",
        "up.weight",
    ]
    for out_folder, line in (
        (tmp_path / "out", "is there already: name a new folder"),
        (folder / "inside", "lies in the release itself, which is copied"),
    ):
        assert export.main([*given, "--out", str(out_folder)]) == 2
        assert line in capsys.readouterr().err
    assert export.main([*given, "--out", str(tmp_path / "adapter"), "--adapter"]) == 2
    assert "has no adapter: all parameters were trained" in capsys.readouterr().err
    (package / "net_model.py").write_text("")
    for name in ("net_flow.net_model", "net_flow"):
        monkeypatch.delitem(sys.modules, name)
    importlib.invalidate_caches()
    assert export.main([*given, "--out", str(tmp_path / "third")]) == 2
    assert "net_flow has 0 classes that say where their weights come from" in capsys.readouterr().err


def test_parts_that_make_no_whole_are_named(release: Release) -> None:
    folder, tensors = release
    state = parameters(tensors)
    back = dict(Net.weights.tensors({**state, "as it is": torch.ones(1)}.items(), named))
    assert torch.equal(back["qkv.weight"], tensors["qkv.weight"].float())
    assert torch.equal(back["up.weight"], tensors["up.weight"])
    assert "as it is" in back
    with pytest.raises(ValueError, match=r"'qkv.weight' and 0 more came in part only: k.weight"):
        list(Net.weights.tensors([("k.weight", state["k.weight"])]))
    found = Net.weights.open(str(folder))
    assert torch.equal(found["gate_up.weight"], state["gate_up.weight"])
    kept = load_file(folder / FILE)
    for change, message in (
        ({"up.weight": None}, "'gate_up.weight' is joined from 2 tensors; 'up.weight' is missing"),
        ({"up.weight": torch.zeros(2, 6)}, r"the parts of parameter 'gate_up.weight' are \(3, 2\) long along axis 0"),
        ({"qkv.weight": torch.zeros(7, 6)}, r"'qkv.weight' \(7, 6\) cannot be taken apart into parameters of"),
        ({"net.a": torch.zeros(1), "out.weight": torch.zeros(1)}, "'out.weight' is in no rule of Net"),
    ):
        made = {name: tensor for name, tensor in {**kept, **change}.items() if tensor is not None}
        save_file(made, folder / FILE)
        with pytest.raises((ValueError, KeyError), match=message):
            Net.weights.open(str(folder))


def named(name: str) -> str | None:
    return None if name == "as it is" else name
