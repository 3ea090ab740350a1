"""A guidance constant is written down in more than one module of the package.

Rollout and training have to apply the same guidance: a scale of 3 for 4 moves the log-prob by 7e-3, without
guidance it is 8e-2, and the clip range is 1e-5. Two literals drift as soon as one of them is changed.

    # rollout adapter                                # training adapter
    extra_args.setdefault("cfg_text_scale", 4.0)      getattr(pipeline, "cfg_text_scale", 3.0)

Instead: one table in a module that both adapters import.
"""

from __future__ import annotations

from scaffold.check.example import Example
from scaffold.check.model.guidance_defaults import GuidanceDefault, guidance_defaults
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.sides import side_of
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC205"
NAME = "duplicated-cfg-constant"
SEVERITY = "error"
CHECKLIST = ("pitfall 29",)
APPLIES = Applies(objective="policy_gradient")
HELP = "write it once, in a module that both adapters import"


def check(package: Package) -> Hits:
    """Compare the modules with each other."""
    sides = [{f.file for f in side_of(package, which).functions} for which in ("training", "rollout")]
    taking_part = sides[0] | sides[1]
    adapters = {cls.file for cls in (*package.training_adapters, *package.rollout_adapters)}
    found: dict[str, list[GuidanceDefault]] = {}
    for file in package.files:
        if file in taking_part and b"cfg" in file.data.lower():
            for default in guidance_defaults(file):
                if "cfg" in default.name:
                    found.setdefault(default.name, []).append(default)
    for name, defaults in found.items():
        files = list(dict.fromkeys(default.file for default in defaults))
        if len(files) < 2:
            continue
        # The one that is to stay: a module beside the adapters, else the training adapter's.
        home = min(files, key=lambda file: (file in adapters, file not in sides[0], file.path))
        for default in defaults:
            if default.file is not home:
                yield Hit(default.file, default.node, _message(default, name, home, defaults))


def _message(default: GuidanceDefault, name: str, home: PythonFile, defaults: list[GuidanceDefault]) -> str:
    other = next(item for item in defaults if item.file is home)
    drifted = f", where it is {other.value!r}" if other.value != default.value else ""
    return f"{name} is written down here as {default.value!r} and in {home.name}{drifted}"


FAILING = (
    Example(
        "a second table", training=("ToyForTraining\n", 'ToyForTraining\n\n\n_GUIDANCE = {"cfg_text_scale": «4.0»}\n')
    ),
    Example(
        "a fall-back that drifted",
        training=('if guidance["cfg_text_scale"] ', 'if getattr(model_config.pipeline, "cfg_text_scale", «3.0») '),
    ),
    Example(
        "in the rollout adapter",
        rollout=("CFG_DEFAULTS}))\n", 'CFG_DEFAULTS}))\n        extra_args.setdefault("cfg_text_scale", «4.0»)\n'),
    ),
)
PASSING = (Example("compared with a number", training=('cfg_text_scale"] > 1.0', 'cfg_text_scale"] > 1.5')),)
