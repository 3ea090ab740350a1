"""Sizes of a model, from the configuration beside its weights."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from .saved_config import FILE, config_values, write_config

MARK = "_training_config"


class SavedSizes:
    """Goes before a dataclass of sizes: it is saved as ``config.json``, and read back to the same values."""

    if TYPE_CHECKING:
        hidden_size: int
        num_attention_heads: int
        latent_patch_size: int
        latent_channel: int
        vae_downsample: int

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def patch_latent_dim(self) -> int:
        """Channels of one latent token."""
        return self.latent_patch_size**2 * self.latent_channel

    @property
    def pixels_per_token(self) -> int:
        """Side, in pixels, of the image square that one latent token stands for."""
        return self.latent_patch_size * self.vae_downsample

    def note_release(self, module: type, texts: Mapping[str, str]) -> None:
        """Keep what is saved beside the sizes.

        Args:
            module: class of the training module.
            texts: the released configuration files by path.
        """
        self.__dict__["_named"] = config_values(module, None, {}, "")
        # Not an index: save_pretrained of the module writes one file with all weights.
        self.__dict__["_texts"] = {path: text for path, text in texts.items() if not path.endswith("index.json")}

    def to_dict(self: Any) -> dict[str, Any]:
        """The values of ``config.json``: the released ones, and the sizes in a section of their own."""
        texts = getattr(self, "_texts", {})
        released = json.loads(texts.get(FILE, "{}"))
        return {**getattr(self, "_named", {}), **released, MARK: {"class": type(self).__name__, **asdict(self)}}

    def save_pretrained(self: Any, save_directory: str, **kwargs: Any) -> None:
        """Write ``config.json`` and the other released files; ``from_model_path`` reads them back to the same values.

        Args:
            save_directory: takes the files.
            kwargs: not used.
        """
        texts = {path: text for path, text in getattr(self, "_texts", {}).items() if path != FILE}
        write_config(save_directory, texts, self.to_dict())

    @classmethod
    def saved(cls, root: dict[str, Any]) -> Self | None:
        """What :meth:`save_pretrained` wrote; None where ``root`` is a released configuration."""
        sizes = root.get(MARK)
        if not isinstance(sizes, dict) or sizes.get("class") != cls.__name__:
            return None
        values = {field.name: sizes[field.name] for field in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def read_json(model_path: str, name: str) -> dict[str, Any]:
    """Read one JSON object beside the weights.

    Raises:
        FileNotFoundError: there is no such file.
    """
    path = os.path.join(model_path, name)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path} is missing; the training module reads its sizes from there")
    with open(path, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


# Sizes that configurations of language models call the same.
LANGUAGE_MODEL = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "rms_norm_eps",
    "rope_theta",
)


def required_sizes(section: dict[str, Any], file: str, names: Sequence[str] = LANGUAGE_MODEL) -> dict[str, Any]:
    """Sizes that a section has under these names; see :func:`required`."""
    return {name: required(section, name, file) for name in names}


def section_or_file(model_path: str, root: dict[str, Any], name: str, section: str = "") -> dict[str, Any]:
    """Sizes of a part of the model: the file that the rollout reads, else the section of ``config.json``.

    Raises:
        FileNotFoundError: there is neither.
    """
    if name and os.path.isfile(os.path.join(model_path, name)):
        return read_json(model_path, name)
    found = root.get(section) if section else None
    if isinstance(found, dict):
        return found
    lacking = [name] if name else []
    lacking += [f"section {section} of config.json"] if section else []
    raise FileNotFoundError(f"{' or '.join(lacking)} is missing in {model_path}")


def required(config: dict[str, Any], key: str, name: str) -> Any:
    """A size that has no default.

    Raises:
        ValueError: it is not there.
    """
    if key not in config:
        raise ValueError(f"{name} has no {key!r}; the training module cannot guess it")
    return config[key]


def lookup(config: Any, path: str, default: Any) -> Any:
    """Follow a dotted path; ``default`` is what the rollout pipeline assumes where the entry is missing."""
    for key in path.split("."):
        config = config.get(key) if isinstance(config, dict) else None
        if config is None:
            return default
    return config


def token_id(model_path: str, text: str, default: int | None) -> int:
    """Id of an added token: what the tokenizer's files say, which is what the rollout uses, else ``default``.

    Raises:
        ValueError: there is neither.
    """
    for name in ("tokenizer.json", "tokenizer_config.json", "added_tokens.json"):
        if not os.path.isfile(os.path.join(model_path, name)):
            continue
        content = read_json(model_path, name)
        for token in content.get("added_tokens") or ():
            if token.get("content") == text:
                return int(token["id"])
        for found, token in (content.get("added_tokens_decoder") or {}).items():
            if token.get("content") == text:
                return int(found)
        if name == "added_tokens.json" and text in content:
            return int(content[text])
    if default is None:
        raise ValueError(f"no tokenizer file in {model_path} gives the id of {text!r}")
    return int(default)
