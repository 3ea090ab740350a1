"""What the run's package and its tiny checkpoint ask for, as at level ``rollout``: sizes, tokenizers, no kernels.

Which modules are meant, variables of the run say: nothing here knows a model.
"""

from __future__ import annotations

import importlib
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

from scaffold.files.reading import read_text
from scaffold.verify.rollout.engine_side.tiny import constants
from scaffold.verify.train.trainer_side.hooks import Hooks, of_run

MODELS = "vllm_omni.diffusion.models"
AGENT_LOOP = "verl_omni.agent_loop.diffusion_agent_loop"
TOKENIZERS = "transformers.tokenization_utils_base"
PLAIN = ("TokenizersBackend", "PreTrainedTokenizerFast")  # names of the class that adds no rule, by version


@of_run
def constant_sizes() -> Hooks:
    """A denoiser whose sizes are constants of its pipeline's source is built with small ones.

    Which, a file beside the run's checkpoint says.
    """
    checkpoint = _checkpoint()
    if checkpoint is None:
        return {}
    return dict.fromkeys(constants.modules(checkpoint), partial(constants.replace_in, checkpoint))


@of_run
def small_sizes() -> Hooks:
    """A pipeline that makes images of the sizes in a table alone gets one small size in its place.

    The table has ``module``, ``constant``, ``sizes`` as the package knows them, and ``side`` of the small one, in
    pixels. It is changed before another module imports it.

    Raises:
        LookupError: it is not the one that the package was made for.
    """
    table: Any = json.loads(os.environ.get("OMNI_SCAFFOLD_TRAIN_SIZES") or "null")

    def replace(module: Any) -> None:
        from scaffold.verify.rollout.engine_side.sizes import replaced

        setattr(module, table["constant"], replaced(module, table, [(table["side"], table["side"])])[1])

    return {table["module"]: replace} if table else {}


@of_run
def given_request() -> Hooks:
    """Every request brings what ``[verify.request]`` gives, as at level ``rollout``, beside what VeRL-Omni declares.

    A pipeline that would make small images as large as its released sizes is told there not to.
    """
    given: Any = json.loads(os.environ.get("OMNI_SCAFFOLD_TRAIN_REQUEST") or "null")

    def bring(module: Any) -> None:
        original = module._config_to_sampling_dict

        def settings(config: Any) -> dict[str, Any]:
            declared: dict[str, Any] = original(config)
            return {**given, **declared} if "height" in declared else declared

        module._config_to_sampling_dict = settings

    return {AGENT_LOOP: bring} if given else {}


@of_run
def tiny_tokenizers() -> Hooks:
    """The tokenizer of a tiny checkpoint is loaded as it was saved, whatever class asks for it.

    Classes of released tokenizers build rules of their own around a vocabulary: CLIP's would encode another text than
    the agent loop, which asks for no class, decodes.
    """
    checkpoint = _checkpoint()
    return {TOKENIZERS: partial(_load_plain, checkpoint)} if checkpoint is not None else {}


def _load_plain(checkpoint: Path, module: Any) -> None:
    owner = module.PreTrainedTokenizerBase
    original = owner.from_pretrained.__func__

    def from_pretrained(cls: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        folder = Path(str(path), kwargs.get("subfolder") or "")
        if folder.is_relative_to(checkpoint) and _saved_class(folder) in PLAIN:
            cls = importlib.import_module("transformers").PreTrainedTokenizerFast
        return original(cls, path, *args, **kwargs)

    owner.from_pretrained = classmethod(from_pretrained)


def _saved_class(folder: Path) -> str | None:
    file = folder / "tokenizer_config.json"
    return json.loads(read_text(file)).get("tokenizer_class") if file.is_file() else None


@of_run
def withheld_kernels() -> Hooks:
    """Without triton, vllm puts a stand-in in its place, which imports and cannot be called: kernels stay away.

    Only modules whose every import in the model's folder is prepared for that; the model then takes its plain path.
    They are withheld before the model's folder is imported, which lies below ``MODELS``.
    """
    sources = os.environ.get("OMNI_SCAFFOLD_TRAIN_SOURCES", "").split(",")
    names = [name for name in sources if name.startswith(MODELS)]

    def withhold(_: Any) -> None:
        from scaffold.verify.rollout.engine_side.settings import withhold_kernels

        for name in names:
            withhold_kernels(name)

    return {MODELS: withhold} if names else {}


def _checkpoint() -> Path | None:
    checkpoint = Path(os.environ.get("MODEL_PATH", ""))
    return checkpoint if checkpoint.is_absolute() else None
