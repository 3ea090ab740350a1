"""The request that a pipeline is executed on: text to image, with nothing set but the prompt."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from scaffold.inspect.program.values import Map, Obj, Param, Seq
from scaffold.source.classes import ClassInfo
from scaffold.source.modules import ModuleInfo
from scaffold.source.values import ClassRef, Evidence, Func, Value

if TYPE_CHECKING:
    from scaffold.inspect.program.core import Execution


SAMPLING_FIELD = "sampling_params"
REQUEST_MODULE = "vllm_omni.diffusion.request"
BATCH_MODULE = "vllm_omni.diffusion.worker.request_batch"


class Requests:
    """Makes requests and engine options from the annotations of the pipeline's parameters."""

    def __init__(self, run: Execution) -> None:
        self.run, self.path = run, run.path

    def annotated_class(self, annotation: ast.expr | None, module: ModuleInfo) -> ClassInfo | None:
        """The class of the source that an annotation names, inside unions and lists too."""
        if annotation is None:
            return None
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except SyntaxError:
                return None
        if isinstance(annotation, ast.BinOp):
            return self.annotated_class(annotation.left, module) or self.annotated_class(annotation.right, module)
        if isinstance(annotation, ast.Subscript):
            inner = annotation.slice
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            for part in parts:
                found = self.annotated_class(part, module)
                if found is not None:
                    return found
            return None
        if isinstance(annotation, (ast.Name, ast.Attribute)):
            value = self.run.interpreter.evaluate_global(annotation, module)
            return value.cls if isinstance(value, ClassRef) else None
        return None

    def make_options(self, annotation: ast.expr | None, module: ModuleInfo, at: Evidence) -> Value:
        """The engine's options (``od_config``)."""
        cls = self.annotated_class(annotation, module)
        if cls is None:
            return Param("od_config", "", at=at)
        return Obj(cls, root="od_config", ready=True, at=at)

    def make_request(self, annotation: ast.expr | None, module: ModuleInfo, at: Evidence) -> Value:
        """The pipeline's request parameter, after what its class fills in."""
        cls = self.annotated_class(annotation, module)
        if cls is None and annotation is None:
            cls = self._request_class()
        return self._request(self._handed_over(cls), at) if cls is not None else Param("request", "", at=at)

    def make_single_request(self, at: Evidence) -> Value | None:
        """One request, as it is before a runner puts it in a batch."""
        cls = self._request_class()
        return self._request(cls, at) if cls is not None else None

    @staticmethod
    def keys_put_in(request: Value) -> set[tuple[str, str]]:
        """Roots and keys of dictionaries that were put in place of a request's prompt or extra arguments."""
        found: set[tuple[str, str]] = set()
        fields = request.attrs if isinstance(request, Obj) else {}
        sampling = fields.get(SAMPLING_FIELD)
        extra = sampling.attrs.get("extra_args") if isinstance(sampling, Obj) else None
        for root, held in (("prompt", fields.get("prompt")), ("extra_args", extra)):
            table = held.default if isinstance(held, Param) else held
            if isinstance(table, Map):
                found |= {(root, k) for k in table.items if isinstance(k, str) and k != "**" and k not in table.maybe}
        return found

    def _request_class(self) -> ClassInfo | None:
        """The request's class, where a pipeline does not say what it takes."""
        module = self.run.scopes.graph.find(REQUEST_MODULE)
        for node in module.definitions.values() if module is not None else ():
            if module is not None and isinstance(node, ast.ClassDef):
                cls = self.run.scopes.classes.get(node, module)
                if cls.is_dataclass and SAMPLING_FIELD in cls.annotations:
                    return cls
        return None

    def _handed_over(self, cls: ClassInfo) -> ClassInfo:
        """What the runner hands a pipeline: a batch of requests, where a version has one, whatever is annotated."""
        if cls.find_method("prompts") is not None or "prompts" in {name for _, name, _ in cls.all_fields()}:
            return cls
        module = self.run.scopes.graph.find(BATCH_MODULE)
        for node in module.definitions.values() if module is not None else ():
            if module is None or not isinstance(node, ast.ClassDef):
                continue
            batch = self.run.scopes.classes.get(node, module)
            annotated = batch.find_annotation("requests")
            if annotated is not None and self.annotated_class(annotated[1], annotated[0].module) is cls:
                return batch
        return cls

    def _request(self, cls: ClassInfo, at: Evidence) -> Value:
        obj = Obj(cls, ready=True, at=at)
        for owner, name, default in cls.all_fields():
            annotated = cls.find_annotation(name)
            inner = self.annotated_class(annotated[1], annotated[0].module) if annotated else None
            if name == SAMPLING_FIELD and inner is not None:
                obj.attrs[name] = Obj(inner, root="sampling_params", ready=True, at=at)
                self.run.sampling_class = inner
            elif name == "requests" and inner is not None:
                obj.attrs[name] = Seq("list", [self._request(inner, at)], at=at)
            elif name == "prompts":
                obj.attrs[name] = Seq("list", [Param("prompt", "", at=at)], at=at)
            elif name == "prompt":
                obj.attrs[name] = Param("prompt", "", at=at)
            elif default is not None:
                obj.attrs[name] = self.run.attributes.field_default(default, owner)
            else:
                obj.attrs[name] = Param("request", name, at=at)
        post = cls.find_method("__post_init__")
        if post is not None and SAMPLING_FIELD in obj.attrs:
            self.run.call(Func(post[1], post[0].module, post[0], obj), [], {}, at)
        return obj
