"""A LoRA target of a script names no module of the training module.

PEFT matches a target with the end of a module's name. A target that fits nothing is passed over as long as another
one fits: part of the model stays untrained, the loss is finite, the exit code is 0. With ``layered_summon`` the trainer
collects LoRA below ``fsdp_layer_prefixes``, ``transformer_blocks.`` where a script says nothing, for the rollout.

    target_modules='["q_proj_gen", "k_projection_gen"]'      # the module is called k_proj_gen

Instead: name the modules as the training module does.
"""

from __future__ import annotations

from difflib import get_close_matches

from scaffold.check.example import Example
from scaffold.check.finding import Span
from scaffold.check.model.module_paths import ModulePaths, is_target, module_paths
from scaffold.check.model.package import Package
from scaffold.check.model.python import ClassModel
from scaffold.check.model.shell import MODEL, ROLLOUT, ShellScript, lora_rank, names, truth
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC507"
NAME = "unmatched-lora-target"
SEVERITY = "error"
CHECKLIST = ("W3", "pitfall 18")
APPLIES = Applies(non_diffusers=True)


_PREFIXES = ("transformer_blocks.",)  # the trainer's default


def check(package: Package) -> Hits:
    """Look for every target of every script among the modules that the training module builds."""
    module = package.training_module
    paths = module_paths(module) if module is not None else None
    if module is None or paths is None:
        return
    for script in package.scripts:
        yield from _uncollected(script, module, paths)
        if not paths.complete:
            continue
        override = script.override(f"{MODEL}target_modules")
        targets = names(override.value) if override is not None else None
        if override is None or targets is None or lora_rank(script) == 0:
            continue
        if not targets:
            yield Hit(
                script, override.span, "LoRA is asked for and put on no module", "name the projections that are trained"
            )
        yield from _untrained(package, script, override.span, paths, targets)
        for target in targets:
            if not paths.targeted(target):
                ends = sorted({name.rpartition(".")[2] for name in paths.modules})
                near = get_close_matches(target.rpartition(".")[2], ends, n=1)
                help = f"write {near[0]!r}, or whatever the module is called" if near else "name a module that there is"
                yield Hit(script, override.span, f"the LoRA target {target!r} is not a module of {module.name}", help)


def _uncollected(script: ShellScript, module: ClassModel, paths: ModulePaths) -> Hits:
    """Look for prefixes below which the module has no layer whose LoRA could be collected."""
    layered = script.override(f"{ROLLOUT}layered_summon")
    given = script.override(f"{MODEL}fsdp_layer_prefixes")
    if layered is None or truth(layered.value) is not True or lora_rank(script) == 0:
        return
    prefixes = names(given.value) if given is not None else list(_PREFIXES)
    if prefixes is None or any(_layers_below(prefix, paths) for prefix in prefixes):
        return
    lists = sorted({name.partition("{n}")[0] for name in paths.modules if name.endswith(".{n}")}, key=len)
    text = f"layered_summon collects LoRA below {', '.join(prefixes)}, where {module.name} has no layers"
    help = f"write {MODEL}fsdp_layer_prefixes='[\"{lists[0]}\"]'" if lists else "name the list of layers"
    yield Hit(script, (given or layered).span, text, help)


def _layers_below(prefix: str, paths: ModulePaths) -> bool:
    """Whether there are layers below a prefix, or may be where only the module's own attributes are known."""
    if not paths.complete:
        return paths.attributes is None or prefix.partition(".")[0] in paths.attributes
    return any(name.startswith(prefix) and "." not in name[len(prefix) :] for name in paths.modules)


def _untrained(package: Package, script: ShellScript, span: Span, paths: ModulePaths, targets: list[str]) -> Hits:
    """Look for targets all of whose modules lie in the part that full training freezes."""
    pieces = package.facts.strings("lora", "trainable")
    if not pieces:
        return
    frozen = []
    for target in targets:
        names = [name for name in paths.modules if is_target(name, target)]
        if names and not any(piece in name for name in names for piece in pieces):
            frozen.append(target)
    if frozen:
        text = f"the LoRA targets {', '.join(frozen)} lie outside of what is trained ({', '.join(pieces)})"
        close = [name for name in package.facts.strings("lora", "targets") or [] if name not in targets]
        yield Hit(script, span, text, f"name {', '.join(close)}" if close else "name the modules that are trained")


_LAYERED = "actor_rollout_ref.rollout.layered_summon=True"
_GIVEN = "    actor_rollout_ref.model.fsdp_layer_prefixes='[\"layers.\"]'\n"
_TARGETS = 'actor_rollout_ref.model.target_modules=\'["q_proj_gen", "k_proj_gen", "v_proj_gen", "o_proj_gen"]\''
_PRESET = "examples/flowgrpo_trainer/toy/toy_preset.yaml"
_YAML = "defaults: [diffusion_trainer, _self_]\nactor_rollout_ref:\n  model:\n    target_modules: [q_proj_gen, %s]\n"
_OF_A_LIBRARY = [
    (
        "from torch import Tensor\n",
        "from torch import Tensor\nfrom transformers.models.qwen2 import modeling_qwen2 as qwen2\n",
    ),
    ('"ToyLayer"', '"Qwen2DecoderLayer"'),
    ("ToyLayer(config) for _ in", "qwen2.Qwen2DecoderLayer(config, n) for n in"),
]
_LAYERS = "        self.layers = nn.ModuleList(ToyLayer(config) for _ in range(config.num_hidden_layers))\n"
_REGISTERED = [
    ("class ToyLayer(nn.Module):", "%sclass ToyLayer(nn.Module):"),
    (
        _LAYERS,
        "        self.layers = nn.ModuleList()\n        for _ in range(config.num_hidden_layers):\n"
        '            self.layers.append(BLOCKS["toy"](config))\n',
    ),
]
_TABLE = (
    "BLOCKS = {}\n\n\ndef block(kind):\n    def keep(cls):\n        BLOCKS[kind] = cls\n        return cls\n\n    return keep\n\n\n"
    '@block("toy")\n'
)
_TARGET = (_TARGETS, f"«{_TARGETS.replace('k_proj_gen', 'k_projection_gen')}»")
_LOOP = (
    "        self.q_proj_gen = nn.Linear(hidden, hidden)\n        self.k_proj_gen = nn.Linear(hidden, hidden)\n",
    '        for name, width in (("q", hidden), ("k", hidden)):\n'
    '            setattr(self, f"{name}_proj_gen", nn.Linear(width, hidden))\n',
)
FAILING = (
    Example("projections that a loop sets by their names", model=_LOOP, launch=_TARGET),
    Example(
        "blocks that a registry makes",
        model=[(_REGISTERED[0][0], _REGISTERED[0][1] % _TABLE), _REGISTERED[1]],
        launch=_TARGET,
    ),
    Example(
        "a name in the configuration that the script starts from",
        {_PRESET: _YAML % "k_projection_gen"},
        launch=[
            (f"    {_TARGETS}\n", ""),
            ("main_diffusion \\\n", 'main_diffusion \\\n    --config-dir "$PRESETS" «--config-name» toy_preset \\\n'),
        ],
    ),
    Example("no prefixes", launch=[(_GIVEN, ""), (_LAYERED, f"«{_LAYERED}»")]),
    Example(
        "prefixes of another model",
        e2e=(
            "actor_rollout_ref.model.fsdp_layer_prefixes='[\"layers.\"]'",
            "«actor_rollout_ref.model.fsdp_layer_prefixes='[\"blocks.\"]'»",
        ),
    ),
    Example(
        "prefixes of the checkpoint, of layers that a library builds",
        model=_OF_A_LIBRARY,
        e2e=(
            "actor_rollout_ref.model.fsdp_layer_prefixes='[\"layers.\"]'",
            "«actor_rollout_ref.model.fsdp_layer_prefixes='[\"model.layers.\"]'»",
        ),
    ),
    Example(
        "a name that is not there",
        launch=(
            'actor_rollout_ref.model.target_modules=\'["q_proj_gen", "k_proj_gen", "v_proj_gen", "o_proj_gen"]\'',
            '«actor_rollout_ref.model.target_modules=\'["q_proj_gen", "k_projection_gen", "v_proj_gen", "o_proj_gen"]\'»',
        ),
    ),
    Example(
        "no target",
        e2e=(
            'actor_rollout_ref.model.target_modules=\'["q_proj_gen", "k_proj_gen", "v_proj_gen", "o_proj_gen"]\'',
            "«actor_rollout_ref.model.target_modules='[]'»",
        ),
    ),
)
PASSING = (
    Example("the targets of projections that a loop sets", model=_LOOP),
    Example(
        "blocks of a registry that is not in the tree",
        model=[
            ("import torch\n", "import torch\nfrom toy_blocks import BLOCKS\n"),
            _REGISTERED[1],
        ],
        launch=(_TARGET[0], _TARGET[1].strip("«»")),
        e2e=("OmniToyForConditionalGeneration", "OmniToyForConditionalGeneration"),
        also="OSC103 OSC121",
    ),
    Example(
        "projections in a dictionary that a function makes",
        model=[
            (
                "class ToyMLP(",
                'def _pair(size):\n    return nn.ModuleDict({"up": nn.Linear(size, size), "net": nn.ModuleList([nn.Linear(size, size)])})\n\n\n'
                "class ToyMLP(",
            ),
            ("        self.vae2llm", "        self.extra = _pair(config.hidden_size)\n        self.vae2llm"),
            (
                "        latents = self.vae2llm(",
                '        context = self.extra["net"][0](self.extra["up"](context))\n        latents = self.vae2llm(',
            ),
        ],
        launch=('"k_proj_gen"', '"k_proj_gen", "extra.up", "net.0"'),
    ),
    Example(
        "names in the configuration that the script starts from",
        {_PRESET: _YAML % "v_proj_gen"},
        launch=[
            (f"    {_TARGETS}\n", ""),
            ("main_diffusion \\\n", "main_diffusion \\\n    --config-name=toy_preset \\\n"),
        ],
    ),
    Example("layers that a library builds", model=_OF_A_LIBRARY),
    Example("nothing is recorded", launch=('"k_proj_gen', '"q_proj", "k_proj_gen')),
    Example("collected as a whole", launch=[(_GIVEN, ""), (f"    {_LAYERED} \\\n", "")]),
)
