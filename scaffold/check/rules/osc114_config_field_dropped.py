"""``from_model_path`` leaves a field out that the model uses.

The field keeps its default whatever the checkpoint says. It fits the released model, and is wrong for the tiny model
of the tests, the next size of the family, and every fine-tuned variant.

    return cls(hidden_size=raw["hidden_size"])        # vocab_size is a field too, and the embedding uses it

Instead: read every field that the model uses.
"""

from __future__ import annotations

import ast

from scaffold.check.example import Example
from scaffold.check.model.calls import attribute_name
from scaffold.check.model.package import Package
from scaffold.check.model.python import ClassModel, FunctionModel
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC114"
NAME = "config-field-dropped"
SEVERITY = "warning"
CHECKLIST = ("M1", "pitfall 36")
APPLIES = Applies(non_diffusers=True)
HELP = "read the field from the checkpoint's configuration"


def check(package: Package) -> Hits:
    """Compare the fields of the dataclass with the arguments that the reader gives."""
    config = package.config_class
    read = config.method("from_model_path") if config is not None else None
    if config is None or read is None or not config.is_dataclass or config.file not in package.files:
        return
    yield from _counted(package, config)
    if any(isinstance(call.func, ast.Name) and call.func.id in ("setattr", "replace") for call in read.calls):
        return
    calls = [call for call in read.calls if isinstance(call.func, ast.Name) and call.func.id in ("cls", config.name)]
    for call in calls:
        if not call.args and not call.keywords and _without_a_file(read, call):
            continue
        if call.args or any(item.arg is None for item in call.keywords):
            continue
        recorded = {table.get("field") for table in package.facts.tables("checkpoint", "text_config")}
        for item in call.keywords:
            # What every checkpoint of the family has in its file is not a constant.
            if item.arg in recorded and isinstance(item.value, ast.Constant):
                yield Hit(
                    read.file, item.value, f"{config.name}.{item.arg} is written down, and the checkpoint says it"
                )
        given = {item.arg for item in call.keywords} | _assigned_later(read.node)
        kept = [n for n, field in config.fields.items() if n not in given and field.value is not None]
        used = [f"{config.name}.{name}" for name in kept if _used(package, config.node, name)]
        if used:
            verb = "keep their defaults" if len(used) > 1 else "keeps its default"
            yield Hit(
                read.file,
                call.func,
                f"{', '.join(used)} {verb}, and the model uses {'them' if len(used) > 1 else 'it'}",
            )


def _without_a_file(read: FunctionModel, call: ast.Call) -> bool:
    """Whether a call stands where no configuration lies beside the weights: the defaults are the released sizes."""
    around = list(read.file.index.ancestors(call))
    asked = [ast.unparse(node.test) for node in around if isinstance(node, ast.If)]
    missing = any(word in text for text in asked for word in ("isfile", "is_file", "exists"))
    return missing or any(isinstance(node, ast.ExceptHandler) for node in around)


def _counted(package: Package, config: ClassModel) -> Hits:
    """Look for layers whose number is written down, beside a field for it that nothing uses."""
    unused = [name for name in config.fields if "layers" in name and not _used(package, config.node, name)]
    module = package.training_module
    flag = module.attribute("_no_split_modules") if module is not None and unused else None
    named = flag.file.value(flag.value) if flag is not None and flag.value is not None else None
    layers = set(named) if isinstance(named, (list, tuple)) else set()
    for file in package.files if layers else ():
        for call in file.index.nodes(ast.Call):
            if file.qualified(call.func) != "torch.nn.ModuleList":
                continue
            # Other lists, of heads or experts, have counts of their own.
            if not any(attribute_name(inner) in layers for inner in file.index.nodes(ast.Call, call)):
                continue
            for inner in file.index.nodes(ast.Call, call):
                count = file.value(inner.args[0]) if len(inner.args) == 1 else None
                if isinstance(inner.func, ast.Name) and inner.func.id == "range" and isinstance(count, int):
                    text = f"{count} layers are built whatever the checkpoint has: {unused[0]} is used nowhere"
                    yield Hit(file, inner.args[0], text, f"write config.{unused[0]}")


def _assigned_later(node: ast.AST) -> set[str]:
    """Return attributes that are assigned to something in the reader: ``config.max_latent_size = …``."""
    return {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)}


def _used(package: Package, config: ast.ClassDef, name: str) -> bool:
    for file in package.files:
        for node in file.index.nodes(ast.Attribute):
            if node.attr == name and isinstance(node.ctx, ast.Load) and not file.index.contains(config, node):
                return True
    return False


_OPENED = '        with open(os.path.join(model_path, "config.json")) as file:\n'
FAILING = (
    Example(
        "the defaults, whatever the file says",
        model=("cls(**{field.name: raw[field.name] for field in fields(cls)})", "«cls»()"),
    ),
    Example("layers are counted", model=("config.num_hidden_layers", "«2»")),
    Example(
        "one is left out",
        model=(
            "cls(**{field.name: raw[field.name] for field in fields(cls)}",
            "«cls»(\n            hidden_size=raw['hidden_size'], num_hidden_layers=raw['num_hidden_layers'],\n            num_attention_heads=raw['num_attention_heads'], vocab_size=raw['vocab_size'],\n            latent_dim=raw['latent_dim'],\n            start_of_image_id=raw['start_of_image_id'], end_of_image_id=raw['end_of_image_id'],\n        ",
        ),
    ),
)
PASSING = (
    Example(
        "the defaults, where no file lies beside the weights",
        model=(
            _OPENED,
            f'        if not os.path.isfile(os.path.join(model_path, "config.json")):\n            return cls()\n{_OPENED}',
        ),
    ),
    Example(
        "all of them, by name",
        model=(
            "**{field.name: raw[field.name] for field in fields(cls)}",
            "\n            hidden_size=raw['hidden_size'], num_hidden_layers=raw['num_hidden_layers'],\n            num_attention_heads=raw['num_attention_heads'], vocab_size=raw['vocab_size'],\n            latent_dim=raw['latent_dim'], max_latent_size=raw['max_latent_size'],\n            start_of_image_id=raw['start_of_image_id'], end_of_image_id=raw['end_of_image_id'],\n        ",
        ),
    ),
)
