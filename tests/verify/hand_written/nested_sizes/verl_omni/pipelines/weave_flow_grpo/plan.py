from dataclasses import asdict, dataclass, field
import json
from pathlib import Path


@dataclass
class Thread:
    breadth: int = 2048
    strands: int = 16
    groups: int = 8
    bulge: int = 4
    plies: int = 24


@dataclass
class Canvas:
    edge: int = 64
    depth: int = 16
    patch: int = 2


@dataclass
class Speech:
    lexicon: int = 151936
    bos: int = 151644
    eos: int = 151645


@dataclass
class Draft:
    thread: Thread = field(default_factory=Thread)
    canvas: Canvas = field(default_factory=Canvas)
    speech: Speech = field(default_factory=Speech)

    @classmethod
    def parse(cls, folder):
        data = json.loads((Path(folder) / "loom" / "draft.json").read_text())
        return cls(Thread(**data["thread"]), Canvas(**data["canvas"]), Speech(**data["speech"]))

    def write(self, folder):
        target = Path(folder) / "loom"
        target.mkdir(parents=True, exist_ok=True)
        (target / "draft.json").write_text(json.dumps(asdict(self)))
