"""What the patches work around is still there, and they act on a module as soon as it is imported, and on no other."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from scaffold.target.pin import text_of
from scaffold.verify.rollout.engine_side.tiny import constants
from scaffold.verify.rollout.environment import Environment, find_environment
from scaffold.verify.train.run import PATH
from scaffold.verify.train.trainer_side.hooks import marked

MISTAKES = Path(__file__).parent / "mistakes"
PATCHES = {function.__name__: function for function in marked(["patches"])}
PLACES = {name: patch.places for name, patch in PATCHES.items() if getattr(patch, "places", None)}
SOURCE = '''
class Sender:
    """Sends."""

    def send(self, what):
        # Twice, to be sure.
        return [what, what]
'''
ABSENT = ""  # the digest of what a release does not have


def _digest(text: str, name: str) -> str | None:
    """Digest of a definition, comments and layout aside; of the whole file where ``name`` is empty.

    Args:
        text: source of a file.
        name: ``function``, ``Class`` or ``Class.method``.

    Returns:
        None where the file has no such definition.
    """
    node: ast.AST | None = ast.parse(text)
    for part in filter(None, name.split(".")):
        node = next(
            (
                inner
                for inner in getattr(node, "body", ())
                if isinstance(inner, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and inner.name == part
            ),
            None,
        )
    return None if node is None else hashlib.sha256(ast.dump(node).encode()).hexdigest()[:12]


def _changed(places: Mapping[str, Sequence[str]], roots: Sequence[Path]) -> Iterator[str]:
    """One line for each place whose code is none of those a patch was written for.

    Args:
        places: those of a patch.
        roots: folders that hold the libraries, the first that has a file counts.
    """
    for place, known in places.items():
        file, _, name = place.partition(":")
        text = next((text for root in roots if (text := text_of(root, file)) is not None), None)
        if text is None:
            yield f"{place}: there is no such file"
        elif (found := _digest(text, name) or ABSENT) not in known:
            yield f"{place}: {found or 'it is gone'}"


# Releases that level train has run with. In 0.32.0rc1 five places are other ones, and the level has not run with it.
TRAINED = ("0.27.0rc1", "0.30.0")


@pytest.mark.rollout
@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("version", TRAINED)
def test_place_is_as_it_was_when_the_patch_was_written(version: str, name: str) -> None:
    environment = find_environment(version)
    if not isinstance(environment, Environment):
        pytest.skip(environment)
    assert list(_changed(PLACES[name], [environment.site_packages])) == []


def test_changed_place_is_named_with_its_new__digest(tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text(SOURCE)
    known = _digest(SOURCE, "Sender.send")
    places = {"library.py:Sender.send": (str(known),)}
    assert list(_changed(places, [tmp_path])) == []
    (tmp_path / "library.py").write_text(SOURCE.replace("# Twice, to be sure.", "# Twice."))
    assert list(_changed(places, [tmp_path])) == []
    (tmp_path / "library.py").write_text(SOURCE.replace("[what, what]", "[what]"))
    other = _digest(SOURCE.replace("[what, what]", "[what]"), "Sender.send")
    assert other != known
    assert list(_changed(places, [tmp_path])) == [f"library.py:Sender.send: {other}"]
    (tmp_path / "library.py").write_text("")
    assert list(_changed(places, [tmp_path])) == ["library.py:Sender.send: it is gone"]
    assert list(_changed(places, [tmp_path / "elsewhere"])) == ["library.py:Sender.send: there is no such file"]


def test_every_patch_says_what_it_is_for() -> None:
    assert len(PATCHES) > 20
    assert [name for name, patch in PATCHES.items() if not patch.__doc__] == []


def started(tmp_path: Path, code: str, **variables: str) -> dict[str, object]:
    """What a process prints that is started as one of a run is."""
    command = [sys.executable, "-c", f"import json, sys\n{code}"]
    paths = os.pathsep.join([str(PATH), str(tmp_path)])
    done = subprocess.run(
        command, env={"PYTHONPATH": paths, **variables}, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def test_process_of_a_run_is_patched_and_imports_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").touch()
    (tmp_path / "ray" / "runtime_context.py").write_text(
        "class RuntimeContext:\n    def get_job_id(self):\n        return '01000000'\n"
    )
    code = "heavy = [name for name in ('torch', 'ray', 'verl', 'typer') if name in sys.modules]\n"
    code += "from ray.runtime_context import RuntimeContext\n"
    code += "print(json.dumps({'heavy': heavy, 'job': RuntimeContext().get_job_id()}))"
    given = {"OMNI_SCAFFOLD_TRAIN": "patches,observers", "OMNI_SCAFFOLD_TRAIN_RUN": "ab12"}
    assert started(tmp_path, code, **given) == {"heavy": [], "job": "01000000ab12"}


def test_other_process_with_the_same_path_is_left_alone(tmp_path: Path) -> None:
    code = "print(json.dumps({'scaffold': [name for name in sys.modules if name.startswith('scaffold')]}))"
    assert started(tmp_path, code) == {"scaffold": []}


def test_hook_on_a_package_reaches_every_module_below_it_once(tmp_path: Path) -> None:
    folder = tmp_path / "verl_omni" / "pipelines" / "foo_flow_grpo"
    folder.mkdir(parents=True)
    for path in (folder, *folder.parents[:2]):
        (path / "__init__.py").touch()
    (folder / "rollout.py").write_text(
        "class Adapter:\n    def map_lora_update_to_engine(self):\n        return 1\n\n\nclass Other:\n    kept = 1\n"
    )
    code = "from verl_omni.pipelines.foo_flow_grpo.rollout import Adapter, Other\n"
    code += "print(json.dumps({'hook': hasattr(Adapter, 'map_lora_update_to_engine'), 'kept': Other.kept}))"
    given = {"OMNI_SCAFFOLD_TRAIN_PACKAGE": "verl_omni.pipelines.foo_flow_grpo"}
    with_control = {"OMNI_SCAFFOLD_TRAIN": f"patches,{MISTAKES / 'lora_not_folded.py'}", **given}
    assert started(tmp_path, code, **with_control) == {"hook": False, "kept": 1}
    assert started(tmp_path, code, OMNI_SCAFFOLD_TRAIN="patches", **given) == {"hook": True, "kept": 1}


def test_small_size_takes_the_place_of_a_table_of_large_ones(tmp_path: Path) -> None:
    (tmp_path / "sizes.py").write_text("SIZES = [(1024, 2048), (2048, 2048)]\n")
    (tmp_path / "pipeline.py").write_text("from sizes import SIZES\n")
    code = "import pipeline\nprint(json.dumps({'sizes': pipeline.SIZES}))"
    table = {"module": "sizes", "constant": "SIZES", "sizes": [[2048, 1024], [2048, 2048]], "side": 64}
    given = {"OMNI_SCAFFOLD_TRAIN": "patches", "OMNI_SCAFFOLD_TRAIN_SIZES": json.dumps(table)}
    assert started(tmp_path, code, **given) == {"sizes": [[64, 64]]}
    given["OMNI_SCAFFOLD_TRAIN_SIZES"] = json.dumps({**table, "sizes": [[512, 512]]})
    with pytest.raises(subprocess.CalledProcessError) as refused:
        started(tmp_path, code, **given)
    assert "not the table that scaffold.toml has" in refused.value.stderr


def test_a_request_brings_what_the_package_s_verify_gives_it(tmp_path: Path) -> None:
    folder = tmp_path / "verl_omni" / "agent_loop"
    folder.mkdir(parents=True)
    for place in (folder.parent, folder):
        (place / "__init__.py").touch()
    (folder / "diffusion_agent_loop.py").write_text("def _config_to_sampling_dict(config):\n    return dict(config)\n")
    code = (
        "from verl_omni.agent_loop.diffusion_agent_loop import _config_to_sampling_dict as told\n"
        "print(json.dumps({'told': [told({'height': 64}), told({'noise_level': 1.0})]}))"
    )
    given = json.dumps({"use_resolution_binning": False, "height": 8})
    found = started(tmp_path, code, OMNI_SCAFFOLD_TRAIN="patches", OMNI_SCAFFOLD_TRAIN_REQUEST=given)
    assert found["told"] == [{"height": 64, "use_resolution_binning": False}, {"noise_level": 1.0}]


def test_sizes_that_a_source_writes_out_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "denoiser.py").write_text("class Layers:\n    def __init__(self, dim=3840):\n        self.dim = dim\n")
    code = "from denoiser import Layers\nprint(json.dumps({'dim': Layers().dim}))"
    given = {"OMNI_SCAFFOLD_TRAIN": "patches", "MODEL_PATH": str(tmp_path)}
    assert started(tmp_path, code, **given) == {"dim": 3840}
    constants.write(tmp_path, {"denoiser": "Layers"}, {"dim": (3840, 96)})
    assert started(tmp_path, code, **given) == {"dim": 96}
    assert started(tmp_path, code, MODEL_PATH=str(tmp_path)) == {"dim": 3840}


def test_a_tiny_tokenizer_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").write_text(
        "from .tokenization_utils_base import PreTrainedTokenizerBase\n\n\n"
        "class PreTrainedTokenizerFast(PreTrainedTokenizerBase):\n    pass\n\n\n"
        "class CLIPTokenizer(PreTrainedTokenizerBase):\n    pass\n"
    )
    (tmp_path / "transformers" / "tokenization_utils_base.py").write_text(
        "class PreTrainedTokenizerBase:\n    @classmethod\n"
        "    def from_pretrained(cls, path, subfolder=None):\n        return cls.__name__\n"
    )
    for folder, saved in (("plain", "TokenizersBackend"), ("released", "CLIPTokenizer")):
        (tmp_path / "tiny" / folder).mkdir(parents=True)
        (tmp_path / "tiny" / folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": saved}))
    code = "from transformers import CLIPTokenizer\n"
    code += f"asked = [CLIPTokenizer.from_pretrained({str(tmp_path / 'tiny')!r}, subfolder=name)"
    code += " for name in ('plain', 'released', 'none')]\nprint(json.dumps({'classes': asked}))"
    released = ["CLIPTokenizer"] * 2
    given = {"OMNI_SCAFFOLD_TRAIN": "patches", "MODEL_PATH": str(tmp_path / "tiny")}
    assert started(tmp_path, code, **given) == {"classes": ["PreTrainedTokenizerFast", *released]}
    given["MODEL_PATH"] = str(tmp_path / "elsewhere")
    assert started(tmp_path, code, **given) == {"classes": ["CLIPTokenizer", *released]}


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="triton is installed")
def test_kernels_are_withheld_before_a_model_is_imported(tmp_path: Path) -> None:
    model = tmp_path / "vllm_omni" / "diffusion" / "models" / "foo"
    model.mkdir(parents=True)
    for folder in (model, *model.parents[:3]):
        (folder / "__init__.py").touch()
    (model / "fast.py").write_text("from stand_in import triton\n\n\n@triton.jit\ndef kernel():\n    pass\n")
    guarded = "try:\n    from .fast import kernel\nexcept ImportError:\n    kernel = None\n"
    (model / "pipeline.py").write_text(guarded)
    (tmp_path / "stand_in.py").write_text("class triton:\n    jit = staticmethod(lambda function: function)\n")
    code = "from vllm_omni.diffusion.models.foo import pipeline\n"
    code += "print(json.dumps({'kernel': None if pipeline.kernel is None else 'a stand-in'}))"
    given = {"OMNI_SCAFFOLD_TRAIN": "patches", "OMNI_SCAFFOLD_TRAIN_SOURCES": "vllm_omni.diffusion.models.foo"}
    assert started(tmp_path, code, **given) == {"kernel": None}
    assert started(tmp_path, code, OMNI_SCAFFOLD_TRAIN="patches") == {"kernel": "a stand-in"}


def test_server_that_takes_no_refusal_ends_its_requests(tmp_path: Path) -> None:
    folder = tmp_path / "verl_omni" / "workers" / "rollout" / "vllm_rollout"
    folder.mkdir(parents=True)
    for path in (folder, *folder.parents[:3]):
        (path / "__init__.py").touch()
    method = "async def abort_all_requests(self, reset_prefix_cache=True):\n        return reset_prefix_cache\n"
    text = f"class vLLMOmniHttpServer:\n    {method}"
    (folder / "vllm_omni_async_server.py").write_text(text)
    code = (
        "import asyncio\nfrom verl_omni.workers.rollout.vllm_rollout.vllm_omni_async_server import vLLMOmniHttpServer\n"
    )
    code += "ended = vLLMOmniHttpServer().abort_all_requests(False, reject_request=True)\n"
    code += "print(json.dumps({'ended': asyncio.run(ended)}))"
    assert started(tmp_path, code, OMNI_SCAFFOLD_TRAIN="patches") == {"ended": False}


QUEUE = """
import multiprocessing


def read(handle, pipe):
    from vllm.distributed.device_communicators import shm_broadcast

    turns = []
    shm_broadcast.sched_yield = lambda: turns.append(1)
    queue = shm_broadcast.MessageQueue.create_from_handle(handle, 0)
    pipe.send("ready")
    queue.wait_until_ready()
    got = []
    while (message := queue.dequeue(timeout=60)) is not None:
        got.append(message)
    pipe.send((got, len(turns)))


if __name__ == "__main__":
    import json
    import time

    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    context = multiprocessing.get_context("spawn")
    queue = MessageQueue(n_reader=1, n_local_reader=1, local_reader_ranks=[0])
    ours, theirs = context.Pipe()
    reader = context.Process(target=read, args=(queue.export_handle(), theirs))
    reader.start()
    ours.recv()
    queue.wait_until_ready()
    for number in range(20):
        queue.enqueue(number)
        time.sleep(0.02)
    queue.enqueue(None)
    got, turns = ours.recv()
    reader.join()
    print(json.dumps({"got": got, "turns": turns}))
"""


@pytest.mark.rollout
def test_a_reader_that_waits_leaves_the_processor_to_others_and_misses_nothing(tmp_path: Path) -> None:
    environment = find_environment(TRAINED[0])
    if not isinstance(environment, Environment):
        pytest.skip(environment)
    (tmp_path / "queue_of_two.py").write_text(QUEUE)
    given = {
        "PYTHONPATH": str(PATH),
        "OMNI_SCAFFOLD_TRAIN": "patches",
        "OMNI_SCAFFOLD_TRAIN_RUN": "ab12",
        "OMNI_SCAFFOLD_ROLLOUT_ON_CPU": "1",
        "VERL_PLATFORM": "cpu",
        "HOME": str(tmp_path),
    }
    command = [str(environment.python), str(tmp_path / "queue_of_two.py")]
    done = subprocess.run(command, env=given, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {"got": list(range(20)), "turns": 0}
