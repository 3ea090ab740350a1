"""Agent loops of requests that bring files or values beside their text, which the row of the data names."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from verl_omni.agent_loop.single_turn_agent_loop import DiffusionSingleTurnAgentLoop


class RefusingAgentLoop(DiffusionSingleTurnAgentLoop):
    """Refuses every request: a server that sees no images in a result asks again without end.

    Attributes:
        reason: what VeRL-Omni does not carry, or what is still to be written.
    """

    reason: ClassVar[str]

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """Refuse.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(self.reason)


class MediaAgentLoop(DiffusionSingleTurnAgentLoop):
    """VeRL-Omni's loop of one turn, with the row's files and values in the request.

    Attributes:
        taken: kinds of files that a request brings: ``image``, ``audio``.
        required: those without which it is refused.
        edits: the image is what is edited, or several are; pictures are cut to the size of the request.
        values: tables of values that a request brings, and what of each has to be there, one of several.
    """

    taken: ClassVar[Sequence[str]] = ()
    required: ClassVar[Sequence[str]] = ()
    edits: ClassVar[bool] = False
    values: ClassVar[Mapping[str, Sequence[str]]] = {}

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """Send one request.

        Args:
            sampling_params: settings of the generation.
            kwargs: columns of the row; ``extra_info`` holds ``inputs``, a JSON object: paths of files by kind, and
                tables of values by name.

        Raises:
            ValueError: the row lacks a file or a value that the pipeline needs, or a file is not there.
        """
        inputs = inputs_of(kwargs)
        # What the engine's settings of a request do not declare travels among its extra arguments.
        sampling_params = {**sampling_params, **read_values(inputs, self.values)}
        loop = self
        if self.taken:
            size = sampling_params.get("width"), sampling_params.get("height")
            media = read_pictures(inputs, size) if self.edits else read_media(inputs, self.taken, self.required)
            loop = copy.copy(self)
            loop.server_manager = _ServerWithMedia(self.server_manager, media)
        return await super(MediaAgentLoop, loop).run(sampling_params, **kwargs)


class _ServerWithMedia:
    """The server manager, which gives every request some media."""

    def __init__(self, server: Any, media: dict[str, Any]) -> None:
        self._server = server
        self._media = {f"{kind}_data": value for kind, value in media.items()}

    async def generate(self, *args: Any, **kwargs: Any) -> Any:
        return await self._server.generate(*args, **{**kwargs, **self._media})


def inputs_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row of the data names beside its text: ``inputs`` of its ``extra_info``, a JSON object."""
    inputs = (row.get("extra_info") or {}).get("inputs") or {}
    return dict(json.loads(inputs) if isinstance(inputs, str) else inputs)


def read_values(inputs: Mapping[str, Any], wanted: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Tables of values that a request brings, by the name under which the pipeline looks for each.

    Raises:
        ValueError: something that the pipeline needs is missing.
    """
    for name, needed in wanted.items():
        table = inputs.get(name)
        if not isinstance(table, dict) or all(table.get(field) is None for field in needed):
            raise ValueError(f"the row has no {name} with {' or '.join(needed)}, which the pipeline needs")
    return {name: inputs[name] for name in wanted}


def read_media(inputs: Mapping[str, Any], taken: Sequence[str], required: Sequence[str]) -> dict[str, Any]:
    """A picture as RGB, and sound as the path of its file, which the pipeline reads at the rate that it wants.

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
            media[kind] = _picture(inputs[kind]) if kind == "image" else _file(inputs[kind], kind)
    return media


def read_pictures(inputs: Mapping[str, Any], size: tuple[int | None, int | None] = (None, None)) -> dict[str, Any]:
    """The reference picture, or a list of several, as RGB in the size of the request.

    What sticks out is cut off on both sides: a pipeline may make its image in the size of the reference, and a batch
    needs one size.

    Args:
        inputs: of the row; ``image`` is a path, or a list of paths.
        size: width and height of the request in pixels; pictures keep theirs where one is None.

    Raises:
        ValueError: there is no image.
    """
    from PIL import Image, ImageOps

    paths = inputs.get("image") or []
    paths = [paths] if isinstance(paths, str) else paths
    if not paths:
        raise ValueError(f"the row has no image to edit; it has {sorted(inputs)}")
    pictures = [_picture(path) for path in paths]
    width, height = size
    if width is not None and height is not None:
        pictures = [ImageOps.fit(picture, (width, height), Image.Resampling.LANCZOS) for picture in pictures]
    return {"image": pictures if len(pictures) > 1 else pictures[0]}


def _file(path: str, kind: str) -> str:
    if not os.path.isfile(path):
        raise ValueError(f"the row's {kind} {path} is no file here: workers need the paths of the data")
    return path


def _picture(path: str) -> Any:
    from PIL import Image

    return Image.open(_file(path, "image")).convert("RGB")
