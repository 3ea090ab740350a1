"""One integration: its adapters, training module and configuration, and what stands around it in the tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from scaffold.check.model.algorithms import Objective, model_name, objective_of
from scaffold.check.model.classes import ClassModel
from scaffold.check.model.follow import instance_class, returned
from scaffold.check.model.functions import FunctionModel
from scaffold.check.model.keys import Keys, dict_keys, either
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.reach import reachable
from scaffold.check.model.recorded_facts import recorded
from scaffold.check.model.registration import Registration, registrations
from scaffold.check.model.submodules import Submodule, module_tree

if TYPE_CHECKING:
    from scaffold.check.model.project import Project
    from scaffold.check.model.shell import ShellScript
    from scaffold.check.model.source import SourceFile


STEPS = ("prepare_encode", "denoise_step", "step_scheduler")  # methods of the engine's step execution


class Package:
    """A folder below ``verl_omni/pipelines`` that brings a model.

    Args:
        project: the tree.
        name: the folder's.
        files: its Python files, sorted by path.
    """

    def __init__(self, project: Project, name: str, files: list[PythonFile]) -> None:
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
        """Whether every file could be parsed, so that what is not found is not there."""
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
    def written_files(self) -> list[PythonFile]:
        """Its files without the one that defines the ported denoiser.

        What stands there runs in the rollout as well. A rule about style, speed or care of code that a person wrote
        does not look into it; `verify` compares what it computes.
        """
        entry = recorded(self, "port", "entry")
        return [file for file in self.files if entry is None or not any(cls.name == entry for cls in file.classes)]

    def deriving(self, *bases: str) -> list[ClassModel]:
        """Return its classes that certainly have one of the ancestors, by name (see `ClassModel.derives_from`)."""
        return [cls for cls in self.classes if cls.derives_from(*bases)]

    # Registrations and the classes that play a part

    @cached_property
    def registrations(self) -> list[Registration]:
        """Every registration in its files."""
        return [found for file in self.files for found in registrations(file)]

    def mentions(self, text: str) -> bool:
        """Whether a text stands in one of its files; cheap, nothing is parsed."""
        return any(text.encode() in file.data for file in self.files)

    def registered(self, side: str) -> list[Registration]:
        """Return the registrations of one side: ``training``, ``rollout``, ``omni_training``, ``omni_rollout``."""
        return [registration for registration in self.registrations if registration.side == side]

    @cached_property
    def training_adapters(self) -> list[ClassModel]:
        """Classes registered for training, and those that could be: heirs of the base that no other inherits."""
        return self._adapters("training", self.deriving("DiffusionModelBase"))

    @cached_property
    def rollout_adapters(self) -> list[ClassModel]:
        """Classes registered for rollout, and heirs of upstream pipelines that no other inherits."""
        heirs = [cls for cls in self.classes if any(_is_upstream_pipeline(name) for name in cls.external)]
        return self._adapters("rollout", heirs)

    def _adapters(self, side: str, heirs: Iterable[ClassModel]) -> list[ClassModel]:
        registered = [found.cls for found in self.registered(side) if found.cls is not None]
        inherited = {base for cls in self.classes for base in cls.mro[1:]}
        found = [*registered, *(cls for cls in heirs if cls not in inherited)]
        return list(dict.fromkeys(found))

    @cached_property
    def training_module(self) -> ClassModel | None:
        """The module that is trained: what ``build_module`` returns, else the only heir of the base that is not a heir
        of another; None where that is not certain."""
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
        """Configuration of the training module: what its ``__init__`` takes, else what ``from_pretrained`` makes."""
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
        """Whether it loads its module itself: it has an heir of ``NonDiffusersModelBase``, names that base, or
        overrides ``build_module`` with something that returns a module."""
        if self.deriving("NonDiffusersModelBase") or any(b"NonDiffusersModelBase" in file.data for file in self.files):
            return True
        for adapter in self.training_adapters:
            method = adapter.method("build_module")
            own = method is not None and not method.qualname.startswith("verl_omni.pipelines.model_base.")
            if method is not None and own and any(not _is_none(value) for value in returned(method)):
                return True
        return False

    @cached_property
    def algorithms(self) -> list[str]:
        """Algorithms it is registered for, as far as they are plain."""
        return list(dict.fromkeys(r.algorithm for r in self.registrations if isinstance(r.algorithm, str)))

    @cached_property
    def objective(self) -> Objective | None:
        """How it is trained, from the name of its algorithm; None where that says nothing."""
        return objective_of(self.algorithms)

    # Code reached from the forward pass

    @cached_property
    def forward_functions(self) -> list[FunctionModel]:
        """Functions and methods that the training module's ``forward`` gets to, sub-modules' ``forward`` included."""
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
            ``(positive, negative)``; each None where its keys are not plain or it is ``None``; keys that any
            ``return`` gives. None where the adapter has no such method, or one ``return`` is not a plain pair.
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
        """Architecture strings it is registered under, as far as they are plain."""
        return list(dict.fromkeys(r.architecture for r in self.registrations if isinstance(r.architecture, str)))

    @cached_property
    def indexed(self) -> bool:
        """Whether it is registered under a name that the checkpoint gives: that of its upstream pipeline, or, where it
        samples by itself or step by step, one that is not an ``Omni…`` of the guide."""
        upstream = [name for adapter in self.rollout_adapters for name in adapter.external]
        names = {name.rpartition(".")[2] for name in upstream if name.startswith("vllm_omni.")}
        own = [a for a in self.rollout_adapters if not names or any(a.method(step) is not None for step in STEPS)]
        given = not any(architecture.startswith("Omni") for architecture in self.architectures)
        return any(architecture in names for architecture in self.architectures) or bool(own and given)

    @cached_property
    def model_name(self) -> str:
        """The package's name without its algorithm: ``foo`` of ``foo_flow_grpo``."""
        return model_name(self.name, lambda: self.algorithms)

    @cached_property
    def launch_scripts(self) -> list[ShellScript]:
        """Scripts below ``examples/`` that train it; see `belongs`."""
        return [script for script in self.project.example_scripts if self.belongs(script)]

    @cached_property
    def e2e_scripts(self) -> list[ShellScript]:
        """Scripts of ``tests/special_e2e/`` that train it; see `belongs`."""
        return [script for script in self.project.e2e_scripts if self.belongs(script)]

    def belongs(self, script: ShellScript) -> bool:
        """Whether a script trains this package.

        It names the package's architecture; or, naming no architecture that another package has, it lies in a folder
        or has a name made of the model's name and the algorithm.
        """
        from scaffold.check.model.scripts import belongs

        return belongs(self, script)

    @cached_property
    def preprocessors(self) -> list[PythonFile]:
        """Python scripts that make the data: those that its launch scripts, their README or e2e scripts name."""
        from scaffold.check.model.scripts import preprocessors

        return preprocessors(self)

    @cached_property
    def deploy_configs(self) -> list[SourceFile]:
        """YAML files that the launch and e2e scripts name and that are there."""
        from scaffold.check.model.scripts import deploy_configs

        return deploy_configs(self)

    @cached_property
    def cpu_tests(self) -> list[PythonFile]:
        """Python files below ``tests/`` that import the package."""
        from scaffold.check.model.scripts import cpu_tests

        return cpu_tests(self)

    @property
    def related(self) -> list[SourceFile]:
        """Files outside of its folder that belong to it: scripts, data, deploy configurations, tests."""
        found: list[SourceFile] = [*self.launch_scripts, *self.e2e_scripts, *self.preprocessors, *self.deploy_configs]
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
