"""Which class a pipeline keeps where, read from its constructor."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scaffold.port.denoiser_class import find_denoiser_class, holding_attribute
from scaffold.source.modules import ModuleGraph
from scaffold.upstream.source import FolderSource

MODULE = "vllm_omni.diffusion.models.small.pipeline"
TEXT = """
class Model(Module):
    pass


class Other(Module):
    pass


def make(depth):
    model = make(depth - 1) if depth else Model()
    model = again(depth)
    return model


def again(depth):
    model = make(depth)
    return model


class Pipeline(Module):
    def __init__(self, od_config):
        self.vae = Other()
        self.dit = Model().to(od_config.device)
        self.other = make(3)
"""


def graph_of(folder: Path, text: str) -> ModuleGraph:
    path = folder / (MODULE.replace(".", "/") + ".py")
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return ModuleGraph(FolderSource(folder, "9.9.9", "9.9.9"))


def report(**values: Any) -> Any:
    known = {"detail.pipeline.class": "Pipeline", **values}
    return SimpleNamespace(upstream=SimpleNamespace(module=MODULE), value=known.get)


def test_functions_that_call_each_other_make_nothing_known(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, TEXT)
    found = find_denoiser_class(graph, report())
    assert found is not None
    assert found.name == "Model"
    kept = holding_attribute(graph, report(), found)
    assert kept is not None
    assert (kept.name, kept.attribute) == ("Pipeline", "dit")


def test_two_attributes_of_one_class_are_told_apart_by_their_names_alone(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, TEXT.replace("self.other = make(3)", "self.second = Model()"))
    found = find_denoiser_class(graph, report())
    assert found is not None
    kept = holding_attribute(graph, report(), found)
    assert kept is not None
    assert kept.attribute == "dit"
    renamed = graph_of(
        tmp_path / "again", TEXT.replace("self.other = make(3)", "self.second = Model()").replace(".dit", ".x")
    )
    assert holding_attribute(renamed, report(), found) is None


def test_what_a_method_of_the_pipeline_returns(tmp_path: Path) -> None:
    text = TEXT.replace("self.other = make(3)", "self.second = Other()").replace(
        "Model().to(od_config.device)", "self.build()"
    )
    method = "\n    def build(self):\n        model = Model(3)\n        model.eval()\n        return model\n"
    graph = graph_of(tmp_path, text.rstrip() + "\n" + method)
    found = find_denoiser_class(graph, report())
    assert found is not None
    kept = holding_attribute(graph, report(), found)
    assert kept is not None
    assert (found.name, kept.attribute) == ("Model", "dit")
    either = method.replace(
        "        return model", "        if model.training:\n            return Other()\n        return model"
    )
    other = graph_of(tmp_path / "again", text.rstrip() + "\n" + either)
    assert holding_attribute(other, report(), found) is None
