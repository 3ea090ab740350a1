"""Libraries that prepare a sound before a model hears it, stood in for where the environment lacks them.

What they make of a sound reaches the denoiser as an argument that the rollout records and training is given, so no
comparison rests on it. The stand-ins keep to what callers see of the libraries: files in a folder, numbers.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from scaffold.files.reading import is_below, read_bytes


class Separator:
    """Of ``audio_separator``: the stem that is asked for is the sound as a whole."""

    def __init__(self, output_dir: Any = None, output_single_stem: str | None = None, **settings: Any) -> None:
        self.output_dir = Path(output_dir or ".")
        self.stem = output_single_stem or "vocals"

    def load_model(self, model_filename: str = "") -> None:
        """No model separates anything here."""

    def separate(self, audio_file: Any) -> list[str]:
        """Copy a sound to where its stem is looked for; returns the name of the file there."""
        source = Path(audio_file)
        name = f"{source.stem}_({self.stem}){source.suffix}"
        place, sound = self.output_dir / name, read_bytes(source)
        mine = any(is_below(folder, place.absolute()) for folder in (Path.cwd(), Path(tempfile.gettempdir())))
        if not mine and (place.is_symlink() or (place.exists() and read_bytes(place) != sound)):
            raise FileExistsError(f"{place} is there already, and is not this run's")
        self.output_dir.mkdir(parents=True, exist_ok=True)
        place.write_bytes(sound)
        return [name]


class Meter:
    """Of ``pyloudnorm``: loudness of the mean square, without the filters and gates of a broadcast's."""

    def __init__(self, rate: int, **settings: Any) -> None:
        self.rate = rate

    def integrated_loudness(self, data: Any) -> float:
        """Loudness of a sound in LUFS; minus infinity of silence."""
        power = float((data.astype("float64") ** 2).mean()) if len(data) else 0.0
        return -0.691 + 10.0 * math.log10(power) if power > 0.0 else -math.inf


def loudness(data: Any, input_loudness: float, target_loudness: float) -> Any:
    """Of ``pyloudnorm.normalize``: the sound as loud as is asked for."""
    return data * 10.0 ** ((target_loudness - input_loudness) / 20.0)


def stand_in() -> None:
    """Serve those of the libraries that are not installed."""
    served: dict[str, dict[str, Any]] = {
        "audio_separator": {},
        "audio_separator.separator": {"Separator": Separator},
        "pyloudnorm": {"Meter": Meter},
        "pyloudnorm.normalize": {"loudness": loudness},
    }
    missing = {name for name in served if "." not in name and importlib.util.find_spec(name) is None}
    for name, members in served.items():
        owner, _, last = name.partition(".")
        if owner in missing:
            module = ModuleType(name)
            vars(module).update(members)
            sys.modules[name] = module
            if last:
                setattr(sys.modules[owner], last, module)
