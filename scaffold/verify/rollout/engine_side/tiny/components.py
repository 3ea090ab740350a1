"""Components that a pipeline loads: where one is missing, a tiny one of its class is written before it is loaded.

The pipeline's own constructor runs and decides by itself which component it loads, of which class, from where. Nothing
is known here of any pipeline; the libraries' own classes say how an instance is made and saved.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import json
import math
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from scaffold.attributes import with_attribute
from scaffold.files.reading import OutsideError, below, is_below, read_text
from scaffold.verify.rollout.engine_side.tiny import text
from scaffold.verify.rollout.engine_side.tiny.loaded import add_up_in_float32, note_states
from scaffold.verify.rollout.engine_side.tiny.mismatch import wanted
from scaffold.verify.rollout.engine_side.tiny.shrink import ENCODER, shrunk, small_file

MOST_STATES, WIDEST = 64, 4096
HUB = "hub"  # folder of what a pipeline fetches from elsewhere
SHORTEST = 512  # positions of an encoder, from which on a prompt of a test fits anyway
EMPTY = "{}"  # what a configuration holds before it is written
LEVELS = 4  # of an autoencoder of images: 8 pixels a side become one latent
BASE = 8  # channels of its widest level
TOKENIZER, PREPARES = "tokenizer.json", "preprocessor_config.json"
SECTIONS = "mrope_section"  # transformers' name for the parts of a head that each axis turns
_AUTO_MODEL = "_BaseAutoModelClass"
_WIDTHS = ("hidden_size", "d_model", "n_embd", "dim")  # names that libraries give an encoder's width
# Class that has the loading method, and the file that shows that a component is there.
_OWNERS = (
    ("transformers", "PreTrainedModel", "config.json"),
    ("transformers.models.auto.modeling_auto", _AUTO_MODEL, "config.json"),
    ("transformers", "AutoConfig", "config.json"),
    ("transformers", "PreTrainedTokenizerBase", TOKENIZER),
    ("transformers", "AutoTokenizer", TOKENIZER),
    ("transformers", "ProcessorMixin", TOKENIZER),
    ("transformers", "AutoFeatureExtractor", PREPARES),
    ("transformers.image_processing_base", "ImageProcessingMixin", PREPARES),
    ("diffusers", "ModelMixin", "config.json"),
    ("diffusers", "SchedulerMixin", "scheduler_config.json"),
)


class NoTinyModelError(Exception):
    """A component cannot be made tiny; the text says which and why."""


class Components:
    """Writes components into a checkpoint when they are asked for.

    Args:
        folder: the checkpoint.
        sources: texts of the pipeline's modules, which spell out special tokens.
        given: settings of components by their folders, from ``scaffold.toml``, which stand as they are.
        dtype: of their weights.
        released: settings of components by their folders, as a checkpoint has them; their sizes are made small.
    """

    def __init__(
        self,
        folder: Path,
        sources: Sequence[str],
        given: dict[str, dict[str, Any]],
        dtype: torch.dtype,
        released: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        self.folder, self.sources, self.given, self.released = folder, list(sources), given, released or {}
        self.inherited: list[str] = []  # texts of modules that the pipeline's class inherits from
        self.classes: dict[str, Any] = {}  # of components by their folders, where a library says them
        self.channels: int | None = None  # of the latents, where the denoiser's configuration says it
        self.dtype = dtype
        self.scale = ENCODER
        self.tried: list[int] = []  # widths of encoders that did not do
        self.layers: dict[Path, int] = {}  # of encoders of which hidden states were asked, where the scale has others
        self.asked: set[Path] = set()
        self.written: dict[Path, str] = {}

    def fit(self, error: Exception) -> bool:
        """Make encoders as wide, or of as many layers, as a pipeline wants hidden states, where that is what failed.

        Returns:
            Whether anything was changed: encoders that were written are gone, and are written anew when asked for.
        """
        wide = wanted(error, self.scale.hidden)
        if deeper := self._deeper(error):
            self.layers |= deeper
        elif wide is not None and 1 < wide <= WIDEST:
            self._refuse_two_widths(wide)
            self.tried.append(self.scale.hidden)
            self.scale = replace(self.scale, hidden=wide)
        else:
            return False
        for folder in [folder for folder, kind in self.written.items() if kind == "encoder"]:
            shutil.rmtree(folder)
            del self.written[folder]
        return True

    def _refuse_two_widths(self, wide: int) -> None:
        """Raise where encoders of one width cannot do: a width that was tried is asked for again.

        Raises:
            NoTinyModelError: it names each encoder's table and key.
        """
        encoders = sorted(folder for folder, kind in self.written.items() if kind == "encoder")
        if wide not in self.tried or len(encoders) < 2:
            return
        told = []
        for folder in encoders:
            settings = json.loads(read_text(folder / "config.json"))
            key = next((name for name in _WIDTHS if name in settings), _WIDTHS[0])
            told.append(f"{key} in [verify.components.{_key(folder.relative_to(self.folder).as_posix())}]")
        raise NoTinyModelError(
            f"the text encoders are to be {' and '.join(map(str, sorted({wide, self.scale.hidden})))} wide, not all"
            f" alike: set {' and '.join(told)} of scaffold.toml"
        )

    def _deeper(self, error: Exception) -> dict[Path, int]:
        """Layers of encoders whose hidden states are too few or too many; of all, where none were asked for."""
        encoders = [folder for folder, kind in self.written.items() if kind == "encoder"]
        found = {}
        missing = re.search(r"hidden state -?(\d+) was asked for, there are (\d+)", str(error))
        for folder in [folder for folder in encoders if folder in self.asked] or encoders:
            states = wanted(error, self.layers.get(folder, self.scale.layers) + 1)  # between the layers, and the first
            if missing is not None and int(missing[2]) == self.layers.get(folder, self.scale.layers) + 1:
                states = max(int(missing[1]) + 1, 2 * int(missing[2]))  # more are asked for behind it, mostly
            if states is not None and 1 < states <= MOST_STATES:
                found[folder] = states - 1
        return found

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Answer every ``from_pretrained`` inside the block, and diffusers' ``load_config``."""
        with contextlib.ExitStack() as stack:
            for library, name, file in _OWNERS:
                owner = getattr(importlib.import_module(library), name)
                # Each of transformers' automatic classes has a copy of the method.
                for holder in owner.__subclasses__() if name == _AUTO_MODEL else [owner]:
                    original = inspect.getattr_static(holder, "from_pretrained").__func__
                    if name == "PreTrainedTokenizerBase":
                        self._load_tokenizer = original
                    replaced = classmethod(self._answering(original, file))
                    stack.enter_context(with_attribute(holder, "from_pretrained", replaced))
            holder = importlib.import_module("diffusers").ConfigMixin
            replaced = classmethod(self._configuring(holder.load_config.__func__))
            stack.enter_context(with_attribute(holder, "load_config", replaced))
            library_of_hubs: Any = importlib.import_module("huggingface_hub")
            for owner in (library_of_hubs, library_of_hubs.HfApi):
                stack.enter_context(with_attribute(owner, "snapshot_download", self._fetched))
            yield

    def _answering(self, original: Callable[..., Any], file: str) -> Callable[..., Any]:
        def from_pretrained(cls: Any, path: Any = None, *args: Any, **kwargs: Any) -> Any:
            folder = self._place(path, kwargs.get("subfolder"))
            if folder is None:
                return original(cls, path, *args, **kwargs)
            # A processor that was written whole has what prepares its inputs in its own file, and loads it from there.
            whole = file == PREPARES and self._is_there(folder / "processor_config.json")
            if not whole and not self._is_there(folder / file):
                self._write(cls, folder)
            if file == TOKENIZER and "ProcessorMixin" not in _kinds(cls):
                # Classes of tokenizers build their own from a vocabulary; this one brings all that it does.
                from transformers import PreTrainedTokenizerFast

                return self._load_tokenizer(PreTrainedTokenizerFast, folder)
            if not Path(str(path)).is_dir():  # one of a hub, which this machine does not ask
                path = folder
                kwargs.pop("subfolder", None)
            found = original(cls, path, *args, **kwargs)
            if isinstance(found, torch.nn.Module):
                if self.written.get(folder) == "encoder":
                    note_states(found, partial(self.asked.add, folder))
                if self.dtype != torch.float32:
                    add_up_in_float32(found)
            return found

        return from_pretrained

    def _configuring(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``load_config`` of a part that the pipeline builds of its configuration: the engine loads its weights."""

        def load_config(cls: Any, pretrained_model_name_or_path: Any = None, *args: Any, **kwargs: Any) -> Any:
            path = pretrained_model_name_or_path
            if isinstance(path, str | Path) and _kinds(cls) & {"ModelMixin", "SchedulerMixin"}:
                folder = self._place(path, kwargs.get("subfolder"))
                if folder is not None and not self._is_there(folder / cls.config_name):
                    self._write(cls, folder)
            return original(cls, path, *args, **kwargs)

        return load_config

    def _is_there(self, path: Path) -> bool:
        """Whether a file has content, and does not only hold its place."""
        if not path.is_file() or path.stat().st_size <= len(EMPTY):
            return False
        return path.suffix != ".json" or read_text(path) != _held(self.folder, path, self.released)

    def _fetched(self, *args: Any, **kwargs: Any) -> str:
        """Folder of a repository that a pipeline asks a hub for: this machine asks none."""
        place = _inside(self.folder / HUB, str(kwargs["repo_id"] if "repo_id" in kwargs else args[-1]))
        place.mkdir(parents=True, exist_ok=True)
        return str(place)

    def _place(self, path: Any, subfolder: str | None) -> Path | None:
        """Folder of a component below the checkpoint; None for one that lies elsewhere on this machine."""
        if path is None:
            return None
        place = Path(str(path))
        if not place.is_absolute() and not place.exists():
            place = _inside(self.folder / HUB, place)
        elif place != self.folder and not is_below(self.folder, place):
            return None
        return _inside(self.folder, place / subfolder) if subfolder else place

    def _write(self, cls: Any, folder: Path) -> None:
        kinds = _kinds(cls)
        folder.mkdir(parents=True, exist_ok=True)
        name = folder.relative_to(self.folder).as_posix()
        given, released = self.given.get(name, {}), self.released.get(name, {})
        known = {**released, **given}
        try:
            if kinds & {"PreTrainedTokenizerBase", "AutoTokenizer"}:
                tokenizer = self.tokenizer(cls)
                longest = self._longest(name)
                if longest is not None:
                    tokenizer.model_max_length = longest
                # What is added to a text is one of the tokens, which are set first.
                for name, token in sorted(given.items(), key=lambda item: item[0].startswith("add_")):
                    setattr(tokenizer, name, token)
                tokenizer.save_pretrained(folder)
            elif "ProcessorMixin" in kinds:
                self._processor(cls).save_pretrained(folder)
            elif "AutoFeatureExtractor" in kinds:
                _feature_extractor(folder).save_pretrained(folder)
            elif "AutoConfig" in kinds:
                # The model is asked for next, of the class that its configuration is of.
                auto = importlib.import_module("transformers").AutoModelForCausalLM
                named = self._class(name) or _named_model(auto, known, folder)
                self._encoder(named, given, released, folder).to(self.dtype).save_pretrained(folder)
            elif _AUTO_MODEL in kinds:
                named = self._class(name) or _named_model(cls, known, folder)
                self._encoder(named, given, released, folder).to(self.dtype).save_pretrained(folder)
            elif "PreTrainedModel" in kinds:
                self._encoder(cls, given, released, folder).to(self.dtype).save_pretrained(folder)
            elif kinds & {"SchedulerMixin", "ImageProcessingMixin"}:
                cls(**given).save_pretrained(folder)
            elif "ModelMixin" in kinds:
                self._autoencoder(cls, given, released).to(self.dtype).save_pretrained(folder)
            else:
                raise NoTinyModelError("its class is not known")
        except Exception as error:
            where = "the checkpoint itself" if name == "." else name
            line = " ".join(str(error).split())[:300]
            raise NoTinyModelError(
                f"no tiny {cls.__name__} for {where}: {type(error).__name__}: {line};"
                f" set values in [verify.components.{_key(name)}] of scaffold.toml"
            ) from error
        encodes = kinds & {"PreTrainedModel", "AutoConfig", _AUTO_MODEL}
        if encodes or folder not in self.written:  # what prepares its inputs lies beside an encoder
            self.written[folder] = "encoder" if encodes else cls.__name__

    def _longest(self, folder: str) -> int | None:
        """How long a text may be for the encoder beside a tokenizer, where positions are a table of few rows."""
        encoder = self._class(folder.replace("tokenizer", "text_encoder"))
        found = getattr(encoder.config_class() if encoder is not None else None, "max_position_embeddings", None)
        return found if isinstance(found, int) and found <= SHORTEST else None

    def _class(self, folder: str) -> Any:
        """The class of transformers' that a library says of a component; None for none, or one of many types."""
        found: Any = self.classes.get(folder)
        if getattr(found, "config_class", None) is None:
            return None
        # What several classes inherit from is none that can be built.
        whole = importlib.import_module("transformers").AutoModel._model_mapping
        return whole[found.config_class] if found.__name__.endswith("PreTrainedModel") else found

    def tokenizer(self, cls: Any = None) -> Any:
        """The tokenizer of the checkpoint, whose class it may be told."""
        return text.tokenizer(text.special_tokens(self.sources), text.chats([*self.sources, *self.inherited]), cls)

    def _processor(self, cls: Any) -> Any:
        """A processor of its parts: our tokenizer, and of everything else the default of the same model."""
        model = cls.__module__.split(".")[-2]
        self.sources.append(inspect.getsource(importlib.import_module(cls.__module__)))
        parts: dict[str, Any] = {}
        for name in cls.get_attributes():
            if name == "tokenizer":
                parts[name] = self.tokenizer()
                continue
            module = importlib.import_module(f"transformers.models.auto.{_AUTO[name]}")
            found = getattr(module, f"{name.upper()}_MAPPING_NAMES")[model]
            parts[name] = getattr(importlib.import_module("transformers"), _flat(found)[0])(**_patches(model))
        made = cls(**parts)
        made.chat_template = made.tokenizer.chat_template
        return made

    def _encoder(self, cls: Any, given: dict[str, Any], released: dict[str, Any], folder: Path) -> Any:
        # A processor may be loaded later, and has the same tokens: those of images, which the encoder looks for.
        beside = cls.__module__.replace(".modeling_", ".processing_")
        if beside != cls.__module__ and importlib.util.find_spec(beside) is not None:
            self.sources.append(inspect.getsource(importlib.import_module(beside)))
        tokenizer = self.tokenizer()
        stated = {name: value for name, value in released.items() if name not in _OF_RELEASE}
        plain = cls.config_class.from_dict(stated).to_dict()  # with what the class derives of them
        if SECTIONS in inspect.getsource(importlib.import_module(cls.__module__)):
            plain = _sectioned(plain)
        scale = replace(self.scale, layers=self.layers.get(folder, self.scale.layers))
        values = _tokens(_over(shrunk(plain, scale), given), tokenizer)
        model = cls(cls.config_class.from_dict(values))
        return randomised(model)

    def _autoencoder(self, cls: Any, given: dict[str, Any], released: dict[str, Any]) -> Any:
        parameters = inspect.signature(cls.__init__).parameters
        values = {n: p.default for n, p in parameters.items() if p.default is not p.empty and p.kind != p.VAR_KEYWORD}
        values |= {name: value for name, value in released.items() if name in parameters}
        small = small_autoencoder(values, released)
        if self.channels and "latent_channels" in values and "latent_channels" not in released:
            patch: Any = values.get("patch_size")  # that the denoiser is given of several latents
            small["latent_channels"] = self.channels // (math.prod(patch) if _whole(patch) else 1)
        made = cls(**{name: value for name, value in {**values, **small, **given}.items() if name in parameters})
        # A released configuration may hold what the class itself does not take, and its pipeline reads.
        more = {name: value for name, value in {**released, **given}.items() if name not in parameters}
        made.register_to_config(**more)
        return randomised(made)


def _over(values: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` over values; of a section what is given alone changes."""
    both = {name: (values.get(name), value) for name, value in given.items()}
    sections = {n: _over(old, new) for n, (old, new) in both.items() if isinstance(old, dict) and isinstance(new, dict)}
    return {**values, **given, **sections}


def small_autoencoder(values: dict[str, Any], released: Collection[str]) -> dict[str, Any]:
    """Sizes of a tiny autoencoder with as many levels: what one latent stands for stays.

    Args:
        values: of the constructor's arguments.
        released: names of those that a checkpoint has.
    """
    small: dict[str, Any] = {n: BASE for n in ("base_dim", "decoder_base_dim") if isinstance(values.get(n), int)}
    if "block_out_channels" not in released and len(values.get("block_out_channels") or ()) == 1:
        small |= {"block_out_channels": (BASE,) * LEVELS, "norm_num_groups": BASE // 2, "layers_per_block": 1}
        small |= {name: values[name] * LEVELS for name in ("down_block_types", "up_block_types")}
    for name in (name for name in values if name.endswith("block_out_channels") and name not in small):
        if _whole(values[name]) and (len(values[name]) > 1 or name in released):
            small[name] = tuple(value * BASE // min(values[name]) for value in values[name])
    if "block_out_channels" in small and type(values.get("norm_num_groups")) is int:
        small["norm_num_groups"] = min(values["norm_num_groups"], BASE // 2)
    for name in (name for name in values if name.endswith("layers_per_block") and name not in small):
        if _whole(values[name]):
            small[name] = (1,) * len(values[name])
        elif name in released and type(values[name]) is int:
            small[name] = 1
    return small


# Of a released configuration, what only its own weights and code are of.
_OF_RELEASE = frozenset({"architectures", "auto_map", "dtype", "quantization_config", "torch_dtype"})


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name) else json.dumps(name)


def _whole(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(type(item) is int for item in value)


def _named_model(auto: Any, given: dict[str, Any], folder: Path) -> Any:
    """The class of a model that an ``Auto`` class loads: of the type that ``scaffold.toml`` gives, else of the longest
    type that is in the name of the folder, as in the names of released checkpoints.

    Raises:
        NoTinyModelError: neither says.
    """
    known: Any = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    name = re.sub(r"[^a-z0-9]", "", folder.name.lower())
    fitting = [kind for kind in known if re.sub(r"[^a-z0-9]", "", kind) in name and known[kind] in auto._model_mapping]
    kind = given.get("model_type") or max(fitting, key=len, default=None)
    if kind is None or kind not in known:
        raise NoTinyModelError("the type of the model is not known: set model_type of the component")
    return auto._model_mapping[known[kind]]


def _feature_extractor(folder: Path) -> Any:
    """What prepares sound or images for the encoder in the same folder, with the defaults of the encoder's type.

    Raises:
        NoTinyModelError: there is no encoder, or nothing prepares anything for its type.
    """
    path = folder / "config.json"
    kind = json.loads(read_text(path)).get("model_type") if path.is_file() else None
    auto: Any = importlib.import_module("transformers.models.auto.feature_extraction_auto")
    names = _flat(auto.FEATURE_EXTRACTOR_MAPPING_NAMES.get(kind))
    if not names:
        raise NoTinyModelError(f"nothing is known to prepare inputs of a model of type {kind}")
    return getattr(importlib.import_module("transformers"), names[0])()


def _sectioned(values: dict[str, Any]) -> dict[str, Any]:
    """Settings in which rotary positions of three axes have their sections, which a class may leave out by default."""
    found = {n: _sectioned(v) if isinstance(v, dict) else v for n, v in values.items()}
    for name in ("rope_parameters", "rope_scaling"):
        if isinstance(found.get(name), dict):
            found[name] = {SECTIONS: [1, 1, 1], **found[name]}
    return found


def _inside(folder: Path, name: str | Path) -> Path:
    """Place of a component that a pipeline asks for.

    Raises:
        NoTinyModelError: it leads out of the folder.
    """
    try:
        return below(folder, name)
    except OutsideError as error:
        raise NoTinyModelError(f"a component that the pipeline loads is not made: {error}") from None


def hold_places(folder: Path, error: Exception, released: Mapping[str, Any] | None = None) -> set[Path]:
    """Put empty files where a pipeline misses some below ``folder``, before it loads any; returns them.

    The configuration of a part that ``released`` has, by folder, is written there, made small.
    """
    found: set[Path] = set()
    for name in re.findall(rf"{re.escape(str(folder))}/[\w./-]+", str(error)) if _is_about_files(error) else ():
        path = Path(name.rstrip("."))
        if path.suffix and is_below(folder, path) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_held(folder, path, released or {}), encoding="utf-8")
            found.add(path)
    return found


def _held(folder: Path, path: Path, released: Mapping[str, Any]) -> str:
    """What stands in a file that holds a place."""
    settings = released.get(path.parent.relative_to(folder).as_posix(), {}) if path.name == "config.json" else {}
    return json.dumps(small_file(settings)) if path.suffix == ".json" else ""


def _is_about_files(error: Exception) -> bool:
    return isinstance(error, OSError) or "FileNotFoundError" in str(error)


def _kinds(cls: Any) -> set[str]:
    return {base.__name__ for base in cls.__mro__}


def _patches(model: str) -> dict[str, int]:
    """Sizes of an image's patches, which the released processor of a model shares with its encoder."""
    auto: Any = importlib.import_module("transformers.models.auto.configuration_auto")
    try:
        vision = auto.CONFIG_MAPPING[model]().vision_config
    except (KeyError, AttributeError):
        return {}
    named = {
        "patch_size": "patch_size",
        "temporal_patch_size": "temporal_patch_size",
        "merge_size": "spatial_merge_size",
    }
    return {
        name: getattr(vision, other) for name, other in named.items() if isinstance(getattr(vision, other, None), int)
    }


_AUTO = {
    "image_processor": "image_processing_auto",
    "video_processor": "video_processing_auto",
    "feature_extractor": "feature_extraction_auto",
}


def _flat(found: Any) -> list[Any]:
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list | tuple):
        return [item for part in found for item in _flat(part)]
    return [] if found is None else [found]


def _tokens(values: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """Sizes of vocabularies and ids of tokens that fit the tokenizer."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            found[name] = _tokens(value, tokenizer)
        elif name == "vocab_size":
            found[name] = len(tokenizer)
        elif name.endswith("token_id") and isinstance(value, int) and value >= len(tokenizer):
            named = name.removesuffix("_token_id")
            texts = (f"<|{named}|>", f"<|{named}_pad|>", f"<{named}>")
            known = [text for text in texts if text in tokenizer.get_vocab()]
            found[name] = tokenizer.convert_tokens_to_ids(known[0]) if known else len(tokenizer) - 1
        else:
            found[name] = value
    return found


def randomised(module: Any, seed: int = 0) -> Any:
    """Give every parameter a seeded value that matters; vectors of ones stay near one."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim < 2:
                parameter.copy_((1.0 if bool((parameter == 1).all()) else 0.0) + 0.1 * noise)
            else:
                parameter.copy_(noise * (parameter[0].numel() ** -0.5))
    return module.eval()
