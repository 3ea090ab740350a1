"""One integration of the tree: adapters, training module, configuration, scripts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Literal

from scaffold.check.model.calls import instance_class, returned
from scaffold.check.model.checked_tree import CheckedTree
from scaffold.check.model.facts import Facts, numbers
from scaffold.check.model.keys import Keys, dict_keys, either
from scaffold.check.model.python import ClassModel, FunctionModel, PythonFile
from scaffold.check.model.reach import reachable
from scaffold.check.model.registration import Registration, registrations
from scaffold.check.model.shell import ShellScript, truth
from scaffold.check.model.source import SourceFile
from scaffold.check.model.submodules import Submodule, module_tree
from scaffold.files.layout import PROJECT
from scaffold.spec.lock import LOCK_NAME, SPEC_NAME

# Folders of launch and data scripts, in verl-omni and in a project of its own.
RECIPES = ("examples/", PROJECT.data)
# Names that only an integration mentions; the bytes are searched, so that a file that does not parse counts too.
CONTRACT_BASES = (
    b"DiffusionModelBase",
    b"DiffusionI2IModelBase",
    b"NonDiffusersModelBase",
    b"VllmOmniPipelineBase",
    b"OmniModelBase",
    b"OmniRolloutPipelineBase",
)
Objective = Literal["policy_gradient", "direct_preference"]
# How verl-omni's algorithms end: the first are trained on log-probs of a recorded trajectory, the others are not.
POLICY_GRADIENT = ("grpo", "ppo", "gspo", "grpo_guard")
DIRECT_PREFERENCE = ("dpo", "nft")
# Algorithms of the releases: a folder's name tells its model without reading its files.
ALGORITHM_ENDINGS = ("_flow_grpo", "_dance_grpo", "_mix_grpo", "_dual_grpo", "_diffusion_nft", "_dpo")
STEPS = ("prepare_encode", "denoise_step", "step_scheduler")  # methods of the engine's step execution
ARCHITECTURE = "actor_rollout_ref.model.architecture"
ALGORITHM = "actor_rollout_ref.model.algorithm"
# Columns of the data set that a row of v1 holds; see `_write_trajectory_to_tq` of verl-omni.
V1_COLUMNS = frozenset({"reward_model", "data_source", "extra_info", "raw_prompt"})
_ENTRY = re.compile(r"^verl_omni\.trainer\.main_([a-z]+)(_v1)?$")
_DEFAULT = re.compile(r"(?m)^trainer:\n(?:[ #].*\n|\n)*?  use_v1: *(\w+)")


class Package:
    """A folder below ``verl_omni/pipelines`` that integrates a model.

    Args:
        project: the tree.
        name: the folder's.
        files: its Python files, sorted by path.
    """

    def __init__(self, project: CheckedTree, name: str, files: list[PythonFile]) -> None:
        self.project, self.name, self.files = project, name, files

    @property
    def path(self) -> str:
        """Path of the folder."""
        return f"verl_omni/pipelines/{self.name}"

    @property
    def module(self) -> str:
        """Dotted name."""
        return f"verl_omni.pipelines.{self.name}"

    @property
    def init(self) -> PythonFile | None:
        """Its ``__init__.py``."""
        return next((file for file in self.files if file.path == f"{self.path}/__init__.py"), None)

    @property
    def resolved(self) -> bool:
        """Whether every file could be parsed, so that a name that is not found does not exist."""
        return all(file.problem is None for file in self.files)

    @cached_property
    def classes(self) -> list[ClassModel]:
        """All classes of its files."""
        return [cls for file in self.files for cls in file.classes]

    @cached_property
    def functions(self) -> list[FunctionModel]:
        """All functions and methods of its files."""
        return [function for file in self.files for function in file.all_functions]

    @cached_property
    def facts(self) -> Facts:
        """What its ``scaffold.toml`` and ``scaffold.lock.toml`` record."""
        return Facts(*(self.project.source(f"{self.path}/{name}") for name in (SPEC_NAME, LOCK_NAME)))

    @cached_property
    def release(self) -> tuple[int, int] | None:
        """Major and minor number of the vllm-omni that the tree pins, else of the one it was made for."""
        return numbers(self.project.pinned or self.facts.text("upstream", "version"))

    @cached_property
    def written_files(self) -> list[PythonFile]:
        """Its files without the one that defines the ported denoiser.

        That file holds code of the rollout. Rules about style, speed or care of handwritten code do not apply to it;
        `verify` compares what it computes.
        """
        entry = self.facts.text("port", "entry")
        return [file for file in self.files if entry is None or not any(cls.name == entry for cls in file.classes)]

    def deriving(self, *bases: str) -> list[ClassModel]:
        """Return its classes that certainly have one of the ancestors, by name (see `ClassModel.derives_from`)."""
        return [cls for cls in self.classes if cls.derives_from(*bases)]

    # Registrations and the classes of the integration

    @cached_property
    def registrations(self) -> list[Registration]:
        """Every registration in its files."""
        return [found for file in self.files for found in registrations(file)]

    def mentions(self, text: str) -> bool:
        """Whether one of its files contains a text; nothing is parsed."""
        return any(text.encode() in file.data for file in self.files)

    def registered(self, side: str) -> list[Registration]:
        """Return the registrations of one side: ``training``, ``rollout``, ``omni_training``, ``omni_rollout``."""
        return [registration for registration in self.registrations if registration.side == side]

    @cached_property
    def training_adapters(self) -> list[ClassModel]:
        """Classes registered for training, and subclasses of the base that no other class inherits."""
        return self._adapters("training", self.deriving("DiffusionModelBase"))

    @cached_property
    def rollout_adapters(self) -> list[ClassModel]:
        """Classes registered for rollout, and subclasses of upstream pipelines that no other class inherits."""
        heirs = [cls for cls in self.classes if any(_is_upstream_pipeline(name) for name in cls.external)]
        return self._adapters("rollout", heirs)

    def _adapters(self, side: str, heirs: Iterable[ClassModel]) -> list[ClassModel]:
        registered = [found.cls for found in self.registered(side) if found.cls is not None]
        inherited = {base for cls in self.classes for base in cls.mro[1:]}
        found = [*registered, *(cls for cls in heirs if cls not in inherited)]
        return list(dict.fromkeys(found))

    @cached_property
    def training_module(self) -> ClassModel | None:
        """The trained module: the class that ``build_module`` returns, else the only root of the base's subclasses;
        None where that is not certain."""
        built = {cls for adapter in self.training_adapters if (cls := self.built_module(adapter)) is not None}
        if len(built) == 1:
            return built.pop()
        heirs = self.deriving("NonDiffusersModelBase")
        roots = [cls for cls in heirs if not any(base in heirs for base in cls.mro[1:])]
        return roots[0] if len(roots) == 1 and not built else None

    def built_module(self, adapter: ClassModel) -> ClassModel | None:
        """Return the class of the tree that an adapter's ``build_module`` returns an instance of."""
        method = adapter.method("build_module")
        if method is None:
            return None
        for value in returned(method):
            cls = instance_class(method, value)
            if cls is not None:
                return cls
        return None

    @cached_property
    def config_class(self) -> ClassModel | None:
        """Configuration class of the training module: what ``__init__`` takes, else what ``from_pretrained`` makes."""
        module = self.training_module
        if module is None:
            return None
        start = module.method("__init__")
        if start is not None:
            for argument in start.node.args.args[1:]:
                if argument.annotation is not None:
                    cls = _annotated(start.file, argument.annotation)
                    if cls is not None and ("config" in argument.arg.lower() or cls.is_dataclass):
                        return cls
        loader = module.method("from_pretrained")
        for call in loader.calls if loader is not None else ():
            if isinstance(call.func, ast.Attribute) and call.func.attr in ("from_model_path", "from_pretrained"):
                cls = module.file.project.class_of(loader.file, call.func.value) if loader is not None else None
                if cls is not None and cls is not module and cls.method("forward") is None:
                    return cls
        return None

    # Which guide it follows

    @cached_property
    def is_diffusion(self) -> bool:
        """Whether it brings a diffusion adapter (and not one of the autoregressive omni models only)."""
        marks = (b"DiffusionModelBase", b"DiffusionI2IModelBase", b"VllmOmniPipelineBase", b"NonDiffusersModelBase")
        return any(mark in file.data for file in self.files for mark in marks)

    @cached_property
    def is_non_diffusers(self) -> bool:
        """Whether it loads its module itself: it subclasses or names ``NonDiffusersModelBase``, or overrides
        ``build_module`` with a method that returns a module."""
        if self.deriving("NonDiffusersModelBase") or any(b"NonDiffusersModelBase" in file.data for file in self.files):
            return True
        for adapter in self.training_adapters:
            method = adapter.method("build_module")
            own = method is not None and not method.qualname.startswith("verl_omni.pipelines.model_base.")
            if method is not None and own and any(not _is_none(value) for value in returned(method)):
                return True
        return False

    @cached_property
    def loads_module(self) -> bool:
        """Whether ``build_module`` returns a module that a library loads, of a class that is not in the tree."""
        built = [method for adapter in self.training_adapters if (method := adapter.method("build_module"))]
        written = [method for method in built if method.file in self.files and method.cls in self.training_adapters]
        values = [node.value for method in written for node in method.nodes(ast.Return) if isinstance(node, ast.Return)]
        found = any(value is not None and not (isinstance(value, ast.Constant) and not value.value) for value in values)
        return self.training_module is None and found

    @cached_property
    def algorithms(self) -> list[str]:
        """Algorithms it is registered for, as far as the text tells."""
        return list(dict.fromkeys(r.algorithm for r in self.registrations if isinstance(r.algorithm, str)))

    @cached_property
    def objective(self) -> Objective | None:
        """How it is trained, from the name of its algorithm; None where the name does not tell."""
        kinds: set[Objective] = set()
        for algorithm in self.algorithms:
            if algorithm.endswith(POLICY_GRADIENT):
                kinds.add("policy_gradient")
            elif algorithm.endswith(DIRECT_PREFERENCE):
                kinds.add("direct_preference")
        return kinds.pop() if len(kinds) == 1 else None

    # Code reached from the forward pass

    @cached_property
    def forward_functions(self) -> list[FunctionModel]:
        """Functions and methods that the training module's ``forward`` reaches, sub-modules' ``forward`` included."""
        module = self.training_module
        start = module.method("forward") if module is not None else None
        return reachable(start, module) if start is not None else []

    @cached_property
    def module_tree(self) -> list[Submodule]:
        """What the training module builds, and what that builds in turn."""
        return module_tree(self.training_module) if self.training_module is not None else []

    def model_inputs(self, adapter: ClassModel) -> tuple[Keys | None, Keys | None] | None:
        """Return the keys of the two dictionaries that ``prepare_model_inputs`` returns.

        Returns:
            ``(positive, negative)``, with the keys of every ``return``; each None where its keys are unknown or it is
            ``None``. None where the adapter has no such method, or one ``return`` is no pair.
        """
        method = adapter.method("prepare_model_inputs")
        values = returned(method) if method is not None else []
        pairs = [value.elts for value in values if isinstance(value, ast.Tuple) and len(value.elts) == 2]
        if method is None or not pairs or len(pairs) != len(values):
            return None
        negatives = [dict_keys(method, negative) for _, negative in pairs if not _is_none(negative)]
        return either([dict_keys(method, positive) for positive, _ in pairs]), either(negatives)

    # What stands around it

    @cached_property
    def architectures(self) -> list[str]:
        """Architecture strings it is registered under, as far as the text tells."""
        return list(dict.fromkeys(r.architecture for r in self.registrations if isinstance(r.architecture, str)))

    @cached_property
    def indexed(self) -> bool:
        """Whether it is registered under the class name that the checkpoint states: that of its upstream pipeline, or,
        for an adapter with its own loop or steps, a name other than the ``Omni…`` names of the guide."""
        upstream = [name for adapter in self.rollout_adapters for name in adapter.external]
        names = {name.rpartition(".")[2] for name in upstream if name.startswith("vllm_omni.")}
        own = [a for a in self.rollout_adapters if not names or any(a.method(step) is not None for step in STEPS)]
        given = not any(architecture.startswith("Omni") for architecture in self.architectures)
        return any(architecture in names for architecture in self.architectures) or bool(own and given)

    @cached_property
    def model_name(self) -> str:
        """The package's name without its algorithm: ``foo`` of ``foo_flow_grpo``."""
        ending = next((ending for ending in ALGORITHM_ENDINGS if self.name.endswith(ending)), None)
        if ending is None:
            ending = next((f"_{name}" for name in self.algorithms if self.name.endswith(f"_{name}")), "")
        return self.name.removesuffix(ending)

    @cached_property
    def launch_scripts(self) -> list[ShellScript]:
        """Scripts below ``examples/`` that train it; see `belongs`."""
        return [script for script in self.project.example_scripts if self.belongs(script)]

    @cached_property
    def e2e_scripts(self) -> list[ShellScript]:
        """Scripts of ``tests/special_e2e/`` that train it; see `belongs`."""
        return [script for script in self.project.e2e_scripts if self.belongs(script)]

    @cached_property
    def scripts(self) -> list[ShellScript]:
        """Launch and e2e scripts."""
        return [*self.launch_scripts, *self.e2e_scripts]

    def belongs(self, script: ShellScript) -> bool:
        """Whether a script trains this package.

        It names the package's architecture; or, naming no architecture that another package has, it lies in a folder
        or has a name made of the model's name and the algorithm.
        """
        named_after = self._gives_name_to(script)
        if not named_after and not any(architecture.encode() in script.data for architecture in self.architectures):
            return False
        named = script.override(ARCHITECTURE)
        if named is not None and isinstance(named.value, str):
            others = [p for p in self.project.packages if p is not self and p.mentions(named.value)]
            others = [other for other in others if named.value in other.architectures]
            if named.value in self.architectures:
                return not others or self._has_algorithm_of(script)
            if others:
                return False
        return named_after and self._has_algorithm_of(script)

    def _has_algorithm_of(self, script: ShellScript) -> bool:
        """Whether the script's algorithm is the package's; the folder or file name says it where no override does."""
        override = script.override(ALGORITHM)
        if override is not None and isinstance(override.value, str):
            others = [p for p in self.project.packages if p.model_name == self.model_name and p is not self]
            # Without another package for the model, a wrong algorithm is a mistake in a script of this package.
            theirs = any(override.value in other.algorithms for other in self.sharing)
            return override.value in self.algorithms or not (others or theirs)
        squeezed = [algorithm.replace("_", "") for algorithm in self.algorithms] or [
            self.name[len(self.model_name) :].replace("_", "")
        ]
        place = f"{script.folder.partition('/')[2]}/{script.name}".replace("_", "").replace("-", "")
        return any(algorithm in place for algorithm in squeezed)

    @cached_property
    def sharing(self) -> list[Package]:
        """Other packages that are registered under one of its architectures, for algorithms of their own."""
        found = [p for p in self.project.packages if p is not self and any(map(p.mentions, self.architectures))]
        return [other for other in found if set(other.architectures) & set(self.architectures)]

    def _gives_name_to(self, script: ShellScript) -> bool:
        model = self.model_name
        if script.path.startswith("examples/") and _is_of_one_model(script.folder):
            return script.folder.rpartition("/")[2] in (model, self.name)
        stem = f"_{script.name.removesuffix('.sh')}_"
        if f"_{model}_" not in stem:
            return False
        others = [p.model_name for p in self.project.packages if len(p.model_name) > len(model)]
        return not any(model in other and f"_{other}_" in stem for other in others)

    @cached_property
    def v1_scripts(self) -> list[ShellScript]:
        """Its scripts that train with v1."""
        return [script for script in self.scripts if self.starts_v1(script)]

    @cached_property
    def is_v0_only(self) -> bool:
        """Whether every script of it certainly trains with v0."""
        return bool(self.scripts) and all(self.starts_v1(script) is False for script in self.scripts)

    def starts_v1(self, script: ShellScript) -> bool | None:
        """Whether a script trains with v1; None where the text shows no trainer.

        ``main_…_v1`` falls back to v0 where ``trainer.use_v1`` is false, in the script or in the checkout's
        configuration.
        """
        entries = [match for word in script.words if (match := _ENTRY.match(word.text))]
        if len({match[0] for match in entries}) != 1:
            return None
        if entries[0][2] is None:
            return False
        override = script.override("trainer.use_v1")
        if override is not None:
            return truth(override.usual)
        default = _DEFAULT.search(
            self.project.text(f"verl_omni/trainer/config/_generated_{entries[0][1]}_trainer.yaml")
        )
        return default is None or truth(default[1])

    @cached_property
    def preprocessors(self) -> list[PythonFile]:
        """Data scripts in Python that its launch scripts, their README or its e2e scripts name."""
        project = self.project
        candidates = [
            path
            for folder in (*RECIPES, "tests/special_e2e", PROJECT.smoke)
            for path in project.files(folder.rstrip("/"), ".py")
            if "/data_process/" in path
            or path.startswith(PROJECT.data)
            or re.search(r"(?:^|_)(?:data|dataset)(?:_|\.|$)", path.rpartition("/")[2])
        ]
        texts = [script.readable for script in self.scripts]
        # The README of a folder that all models share names the data of each.
        folders = [script.folder for script in self.launch_scripts if _is_of_one_model(script.folder)]
        texts += [project.text(f"{folder}/README.md") for folder in folders]
        texts += [project.text(PROJECT.readme)] if project.external else []
        named = [path for path in candidates if any(path in text for text in texts)]
        return [file for path in named if (file := project.python(path)) is not None]

    @cached_property
    def deploy_configs(self) -> list[SourceFile]:
        """YAML files that the launch and e2e scripts name and that are there."""
        mentions = [mention.path for script in self.scripts for mention in script.paths]
        paths = dict.fromkeys(path for path in mentions if path is not None and path.endswith((".yaml", ".yml")))
        return [file for path in paths if (file := self.project.source(path)) is not None]

    @cached_property
    def cpu_tests(self) -> list[PythonFile]:
        """Python files below ``tests/`` that import the package."""
        found = []
        marks = tuple(f"{word}{self.name}".encode() for word in ("pipelines.", "import ", "from "))
        for path in self.project.files("tests", ".py"):
            if not path.rpartition("/")[2].startswith("test_"):
                continue
            file = self.project.python(path)
            if file is not None and any(mark in file.data for mark in marks):
                imports = rf"pipelines(?:\.| import )(?:\w+, )*{self.name}\b"
                imports += rf"|^(?:from|import) {self.name}\b" if self.name in self.project.outside else ""
                if re.search(imports, file.readable, re.MULTILINE):
                    found.append(file)
        return found

    @property
    def related(self) -> list[SourceFile]:
        """Files outside of its folder that belong to it: scripts, data, deploy configurations, tests."""
        found: list[SourceFile] = [*self.scripts, *self.preprocessors, *self.deploy_configs]
        found += self.cpu_tests
        if self.project.registry is not None:
            found.append(self.project.registry.file)
        return found


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _is_upstream_pipeline(name: str) -> bool:
    return name.startswith("vllm_omni.") and name.endswith("Pipeline")


def _annotated(file: PythonFile, annotation: ast.expr) -> ClassModel | None:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return file.find_class(annotation.value)
    if isinstance(annotation, ast.BinOp):
        return _annotated(file, annotation.left) or _annotated(file, annotation.right)
    return file.project.class_of(file, annotation)


def _is_of_one_model(folder: str) -> bool:
    """Whether a folder is ``examples/<algorithm>_trainer/<model>``; earlier releases kept all scripts one level up."""
    return folder.count("/") > 1
