"""Agent loops that send, beside the text, what the row of the data names.

A launch script names the package's loop in ``agent.agent_loop_config_path``.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from typing import Any, ClassVar

from verl_omni.agent_loop.single_turn_agent_loop import DiffusionSingleTurnAgentLoop

from .stage_inputs import STAGE_INPUTS


class InputsAgentLoop(DiffusionSingleTurnAgentLoop):  # type: ignore[misc]
    """VeRL-Omni's loop of one turn, with the row's files and values in the request.

    Attributes:
        taken: kinds of files that the pipeline takes beside a prompt.
        required: those that a request is refused without.
        values: tables of values that a request brings, and what of each has to be there, one of several.
        edits: the request's picture, or several, are what is to be changed.
    """

    taken: ClassVar[tuple[str, ...]] = ()
    required: ClassVar[tuple[str, ...]] = ()
    values: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    edits: ClassVar[bool] = False

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """Send one request.

        Args:
            sampling_params: settings of the generation.
            kwargs: columns of the row; ``extra_info`` holds ``inputs``, paths of files by kind and tables of values by
                name, as JSON.

        Raises:
            ValueError: the row lacks a file or a value that the pipeline needs, or the file is not there.
        """
        extra_info = kwargs.get("extra_info") or {}
        # What the engine's settings of a request do not declare travels among its extra arguments.
        sampling_params = {**sampling_params, **values_of(inputs_of(extra_info), self.values)}
        size = sampling_params.get("width"), sampling_params.get("height")
        loop = copy.copy(self)
        loop.server_manager = _ServerWithMedia(self.server_manager, self.read_media(extra_info, size))
        return await DiffusionSingleTurnAgentLoop.run(loop, sampling_params, **kwargs)

    @classmethod
    def read_media(
        cls, extra_info: Mapping[str, Any], size: tuple[int | None, int | None] = (None, None)
    ) -> dict[str, Any]:
        """Media of a row by kind; pictures that are edited in the size of the request, width and height in pixels."""
        inputs = inputs_of(extra_info)
        return pictures_of(inputs, size) if cls.edits else files_of(inputs, cls.taken, cls.required)


class StagedAgentLoop(DiffusionSingleTurnAgentLoop):  # type: ignore[misc]
    """VeRL-Omni's loop of one turn, with the row's file of what the stages before made of its prompt."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """Send one request.

        Args:
            sampling_params: settings of the generation.
            kwargs: columns of the row; ``extra_info`` holds ``inputs``, a JSON object that names the file.

        Raises:
            ValueError: the row names no file, or the file is not there.
        """
        path = inputs_of(kwargs.get("extra_info") or {}).get(STAGE_INPUTS)
        if not path:
            raise ValueError(f"the row has no {STAGE_INPUTS}, which the pipeline needs: the data script makes them")
        return await super().run({**sampling_params, STAGE_INPUTS: _there(STAGE_INPUTS, path)}, **kwargs)


class RefusingAgentLoop(DiffusionSingleTurnAgentLoop):  # type: ignore[misc]
    """Refuses every request, because VeRL-Omni does not carry what it needs, or its result.

    A server that sees no images in a result takes the request for an aborted one, and asks again without end.

    Attributes:
        refused: what is not carried.
    """

    refused: ClassVar[str]

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """Refuse.

        Raises:
            NotImplementedError: always, until VeRL-Omni carries it.
        """
        raise NotImplementedError(self.refused)


class _ServerWithMedia:
    """The server manager, which gives every request some media."""

    def __init__(self, server: Any, media: dict[str, Any]) -> None:
        self._server = server
        self._media = {f"{kind}_data": value for kind, value in media.items()}

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Send a request."""
        return await self._server.generate(*args, **{**kwargs, **self._media})


def inputs_of(extra_info: Mapping[str, Any]) -> dict[str, Any]:
    """What a row names; ``inputs`` is a JSON object."""
    inputs = extra_info.get("inputs") or {}
    parsed: dict[str, Any] = json.loads(inputs) if isinstance(inputs, str) else inputs
    return parsed


def values_of(inputs: Mapping[str, Any], needed: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Tables of values by name.

    Raises:
        ValueError: something that the pipeline needs is missing.
    """
    for name, fields in needed.items():
        table = inputs.get(name)
        if not isinstance(table, dict) or all(table.get(field) is None for field in fields):
            raise ValueError(f"the row has no {name} with {' or '.join(fields)}, which the pipeline needs")
    return {name: inputs[name] for name in needed}


def files_of(inputs: Mapping[str, Any], taken: tuple[str, ...], required: tuple[str, ...]) -> dict[str, Any]:
    """A picture as RGB; anything else as the path of its file, which the pipeline reads as it wants.

    Raises:
        ValueError: something that the pipeline needs is missing.
    """
    missing = [kind for kind in required if not inputs.get(kind)]
    if missing:
        raise ValueError(
            f"the row has no {' and no '.join(missing)}, which the pipeline needs; it has {sorted(inputs)}"
        )
    media: dict[str, Any] = {}
    for kind in taken:
        if inputs.get(kind):
            path = _there(kind, inputs[kind])
            media[kind] = _picture(path) if kind == "image" else path
    return media


def pictures_of(inputs: Mapping[str, Any], size: tuple[int | None, int | None] = (None, None)) -> dict[str, Any]:
    """The reference picture, or a list of several, as RGB in the size of the request.

    What sticks out is cut off on both sides: a pipeline may make its image in the size of the reference, and a batch
    needs one size.

    Args:
        inputs: of the row; ``image`` is a path, or a list of paths.
        size: width and height of the request in pixels; pictures keep theirs where one is None.

    Raises:
        ValueError: there is no image.
    """
    paths = inputs.get("image") or []
    paths = [paths] if isinstance(paths, str) else paths
    if not paths:
        raise ValueError(f"the row has no image to edit; it has {sorted(inputs)}")
    pictures = [_picture(_there("image", path), size) for path in paths]
    return {"image": pictures if len(pictures) > 1 else pictures[0]}


def _picture(path: str, size: tuple[int | None, int | None] = (None, None)) -> Any:
    from PIL import Image, ImageOps

    picture = Image.open(path).convert("RGB")
    return picture if None in size else ImageOps.fit(picture, size, Image.Resampling.LANCZOS)  # type: ignore[arg-type]


def _there(kind: str, path: str) -> str:
    if not os.path.isfile(path):
        raise ValueError(f"the row's {kind} {path} is no file here: workers need the paths of the data")
    return str(path)
