"""The way back from training names to the checkpoint's is not the inverse of the key table.

The way back is used as well: to save weights under the checkpoint's names, and to send the actor's weights to the
engine. Two rows with the same target make the inverse a guess, and half of the weights arrive under the other half's
names. The same happens where the way back has a table of its own that differs, or asks an empty target before the
others.

    ("encoder.", "layers."), ("decoder.", "layers.")

Instead: give every row a target of its own, and go back through the same table, longest target first.
"""

from __future__ import annotations

import ast
import re

from scaffold.check.example import Example
from scaffold.check.example_keys import recorded_spec
from scaffold.check.model.key_tables import Rename, back_tables, key_tables, renamed
from scaffold.check.model.package import Package
from scaffold.check.model.pyfile import PythonFile
from scaffold.check.model.table_loops import goes_back, joined_names, rows_in_order
from scaffold.check.model.ways_back import wrong_ways_back
from scaffold.check.rule import Applies, Hit, Hits

ID = "OSC402"
NAME = "rename-without-inverse"
SEVERITY = "error"
CHECKLIST = ("M6", "pitfall 21")
APPLIES = Applies(non_diffusers=True)
HELP = "give every row of the table a target of its own"
_ORDER = "go through the whole table, longest target first"


def check(package: Package) -> Hits:
    """Look for rows with the same target, and for sources that stand twice."""
    for table in key_tables(package):
        if table.ignores:
            continue
        targets: dict[str, Rename] = {}
        sources: dict[str, Rename] = {}
        for row in table.rows:
            if row.source in sources and sources[row.source].target != row.target:
                text = f"{row.source!r} stands twice, with {sources[row.source].target!r} and with {row.target!r}"
                yield Hit(table.file, row.source_node, text, "keep one of the two rows")
            elif row.target is not None and row.target in targets and row.source not in sources:
                text = f"{row.source!r} and {targets[row.target].source!r} both become {row.target!r}"
                yield Hit(table.file, row.target_node, text)
            sources.setdefault(row.source, row)
            if row.target is not None:
                targets.setdefault(row.target, row)
    told = [*_other_tables(package), *_loops_back(package)]
    yield from told
    # What a loop over the table gets wrong is said above, at its place.
    for function, text in wrong_ways_back(package) if not told else ():
        yield Hit(function.file, function.node, text, _ORDER)


def _other_tables(package: Package) -> Hits:
    """Compare a table that is written the other way round with the table of loading."""
    rows = [row for table in key_tables(package) if not table.ignores for row in table.rows if row.target is not None]
    for table in back_tables(package):
        for row in rows:
            taken = renamed([table], row.target or "")
            if taken is None or taken.target is None:
                text = f"{table.name} has no row for {row.target!r}, which {row.source!r} becomes"
                yield Hit(table.file, table.rows[0].node, text, f"add ({row.target!r}, {row.source!r})")
                return
            if taken.target + (row.target or "")[len(taken.source) :] != row.source:
                text = f"{row.target!r} goes back to {taken.target!r}, and comes from {row.source!r}"
                yield Hit(table.file, taken.node, text, "make it the inverse of the table of loading")
                return


def _loops_back(package: Package) -> Hits:
    """Look at loops over a table that go from target to source, in an order that is plain."""
    tables = {table.name: table for table in key_tables(package) if not table.ignores}
    for file in package.files:
        for node in file.index.nodes(ast.For):
            assert isinstance(node, ast.For)
            name, rows = rows_in_order(file, node.iter, tables)
            if rows is not None and isinstance(node.target, ast.Tuple) and len(node.target.elts) == 2:
                yield from _answers(file, node, any(row.source and row.source == row.target for row in rows))
            back = isinstance(node.target, ast.Tuple) and len(node.target.elts) == 2 and goes_back(node)
            if not back or rows is None:
                continue
            for row in tables[name].rows:
                taken = next((one for one in rows if (row.target or "").startswith(one.target or "")), None)
                same = taken is not None and taken.target == row.target
                if not same and row.target is not None:
                    other = f"goes back through {taken.source!r}" if taken is not None else "has no way back"
                    yield Hit(file, node.iter, f"{row.target!r}, which {row.source!r} becomes, {other}", _ORDER)
                    break


def _answers(file: PythonFile, loop: ast.For, keeps: bool) -> Hits:
    """Compare what a loop over a table asks for, what it cuts off, and what it puts there.

    Args:
        file: where the loop stands.
        loop: the loop.
        keeps: whether a row of the table has the same prefix on both sides, so that rows replace and do not prepend.
    """
    assert isinstance(loop.target, ast.Tuple)
    first, second = (item.id if isinstance(item, ast.Name) else "" for item in loop.target.elts)
    for test in file.index.nodes(ast.If, loop):
        call = test.test
        asked = call.args[0] if isinstance(call, ast.Call) and len(call.args) == 1 else None
        if not (isinstance(asked, ast.Name) and asked.id in (first, second)):
            continue
        assert isinstance(call, ast.Call)
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "startswith"):
            continue
        name = ast.unparse(call.func.value)
        for item in (node for part in test.body for node in file.index.nodes(ast.Return, part)):
            text = ast.unparse(item.value) if item.value is not None else ""
            cut = re.search(r"len\((\w+)\)", text)
            if text == name:
                yield Hit(file, item, "a name that the row speaks of is given back as it is")
            elif cut is not None and cut[1] in (first, second) and cut[1] != asked.id:
                yield Hit(file, item, f"the length of {cut[1]} is cut off a name that begins with {asked.id}")
            elif keeps and item.value is not None and joined_names(item.value) in ((first, name), (second, name)):
                yield Hit(
                    file, item, f"the prefix that {name} begins with is not cut off before another one is put there"
                )
            elif cut is not None and text.startswith(f"{asked.id} + "):
                yield Hit(file, item, f"what begins with {asked.id} gets {asked.id} again")
    around = file.function_around(loop)
    last = around.node.body[-1] if around is not None else None
    if around is not None and isinstance(last, ast.Return) and isinstance(last.value, ast.Name):
        raises = around.file.index.nodes(ast.Raise, around.node)
        if (
            last.value.id in around.parameters
            and not raises
            and any(file.index.contains(s, loop) for s in around.node.body)
        ):
            yield Hit(
                file, last, "a name that no row speaks of is passed on as it is", "raise a KeyError with the name"
            )


FAILING: tuple[Example, ...] = (
    Example(
        "another length",
        {
            "model": [
                (
                    "            return source + name[len(target) :]\n",
                    "            «return source + name[len(source) :]»\n",
                )
            ]
        },
    ),
    Example(
        "nothing cut off",
        {
            "model": [
                ("            return source + name[len(target) :]\n", "            «return source + name»\n"),
            ]
        },
    ),
    Example(
        "nothing cut off, as a formatted string",
        {
            "model": [
                ("            return source + name[len(target) :]\n", '            «return f"{source}{name}"»\n'),
            ]
        },
    ),
    Example(
        "given back", {"model": [("            return source + name[len(target) :]\n", "            «return name»\n")]}
    ),
    Example("passed on", {"model": [("    raise KeyError(name)\n", "    «return name»\n")]}),
    Example(
        "two prefixes with one target",
        {"model": [('    ("llm2vae.", "llm2vae."),\n', '    ("llm2vae.", «"vae2llm."»),\n')]},
    ),
    Example(
        "two prefixes cut off",
        {
            "model": [
                ('    ("language_model.model.", ""),\n', '    ("language_model.model.", ""),\n    ("model.", «""»),\n')
            ]
        },
    ),
    Example(
        "one prefix twice",
        {
            "model": [
                ('    ("llm2vae.", "llm2vae."),\n', '    ("llm2vae.", "llm2vae."),\n    («"vae2llm."», "head."),\n')
            ]
        },
    ),
)
_SORTED = "sorted(KEY_MAP, key=lambda rule: -len(rule[1]))"
_BACK = """
TO_CHECKPOINT = (
    ("", "language_model.model."),
    ("time_embedder.", "time_embedder."),
    ("vae2llm.", "vae2llm."),
    ("llm2vae.", "llm2vae."),
    ("latent_pos_embed.", "latent_pos_embed."),
)
"""
_IGNORED = 'IGNORED_KEYS = (("language_model.lm_head.", "predicts text"),)\n'
_LOOP = (
    "    for source, target in sorted(KEY_MAP, key=lambda rule: -len(rule[1])):\n"
    "        if name.startswith(target):\n            return source + name[len(target) :]\n"
)
_DEF = "def to_checkpoint_key(name: str) -> str:\n"
FAILING += (
    Example(
        "some prefixes are in no branch",
        {
            "spec": recorded_spec(),
            "model": [
                (_DEF, _DEF.replace("to_checkpoint_key", "«to_checkpoint_key»")),
                (
                    _LOOP,
                    '    if name.startswith("layers."):\n        return "language_model.model." + name\n'
                    "    for source, target in KEY_MAP:\n"
                    "        if target and name.startswith(target):\n            return source + name[len(target) :]\n",
                ),
            ],
        },
    ),
    Example(
        "one prefix for all names",
        {
            "spec": recorded_spec(),
            "model": [
                (_DEF, _DEF.replace("to_checkpoint_key", "«to_checkpoint_key»")),
                (_LOOP, '    if name:\n        return f"language_model.model.{name}"\n'),
            ],
        },
    ),
    Example("the empty target is asked first", {"model": [(_SORTED, "«reversed(KEY_MAP)»")]}),
    Example("a part of the table", {"model": [(_SORTED, "«KEY_MAP[:2]»")]}),
    Example("the shortest target first", {"model": [(_SORTED, "«sorted(KEY_MAP, key=lambda rule: len(rule[1]))»")]}),
    Example(
        "a table of its own that differs",
        {"model": [(_IGNORED, _IGNORED + _BACK.replace('("llm2vae.", "llm2vae.")', '«("llm2vae.", "head.")»'))]},
    ),
)
_TO_FILE = """\
    def save_pretrained(self, save_directory, **kwargs):
        self._save_config(save_directory)
        for name, tensor in self.state_dict().items():
            torch.save(tensor, os.path.join(save_directory, to_checkpoint_file(to_checkpoint_key(name))))

"""
_LOADED = "    @classmethod\n    def from_pretrained(cls, model_path"
_BY_DEFAULT = """\
ROOT = open("root").read()


def _back(name: str, root: str = ROOT) -> str:
    return ("language_model.model." if root == "" else "other.") + name


"""
_CHARACTERS = f"in '{'0' * 40}':\n"
PASSING = (
    Example(
        "the name of a file",
        {
            "spec": recorded_spec(),
            "model": [
                (_DEF, 'def to_checkpoint_file(name: str) -> str:\n    return f"{name}.pt"\n\n\n' + _DEF),
                (_LOADED, _TO_FILE + _LOADED),
            ],
        },
    ),
    Example(
        "a default that is known only at run time",
        {
            "spec": recorded_spec(),
            "model": [(_DEF, _BY_DEFAULT + _DEF + '    if name.startswith("layers."):\n        return _back(name)\n')],
        },
    ),
    Example(
        "a loop over something that cannot be told",
        {"spec": recorded_spec(), "model": [(_DEF, _DEF + "    for _ in len(name):\n        pass\n")]},
    ),
    Example(
        "a name that grows and grows",
        {"spec": recorded_spec(), "model": [(_DEF, f"{_DEF}    for _ {_CHARACTERS}        name = name + name\n")]},
    ),
    Example(
        "more steps than can be followed",
        {
            "spec": recorded_spec(),
            "model": [
                (
                    _DEF,
                    f"def _wait(name):\n    for _ {_CHARACTERS}        pass\n    return name\n\n\n"
                    f"def _longer(name):\n    for _ {_CHARACTERS}        name = _wait(name)\n    return name\n\n\n"
                    f"{_DEF}    for _ {_CHARACTERS}        name = _longer(name)\n",
                )
            ],
        },
    ),
    Example(
        "by the first word",
        {
            "spec": recorded_spec(),
            "model": [
                (
                    _LOOP,
                    '    head, _, rest = name.partition(".")\n'
                    '    own = {"time_embedder", "vae2llm", "llm2vae", "latent_pos_embed"}\n'
                    '    if rest:\n        return name if head in own else "language_model.model." + name\n',
                )
            ],
        },
    ),
    Example(
        "by a dictionary",
        {
            "spec": recorded_spec(),
            "model": [
                (
                    _LOOP,
                    "    back = {target: source for source, target in KEY_MAP}\n"
                    "    fitting = [target for target in back if name.startswith(target)]\n"
                    "    if fitting:\n        target = max(fitting, key=len)\n"
                    "        return back[target] + name.removeprefix(target)\n",
                )
            ],
        },
    ),
    Example(
        "cut off by removeprefix",
        {
            "model": [
                (
                    "            return source + name[len(target) :]\n",
                    "            return source + name.removeprefix(target)\n",
                )
            ]
        },
    ),
    Example("the same table", {"model": [(_SORTED, "sorted(KEY_MAP, key=lambda rule: len(rule[1]), reverse=True)")]}),
    Example("a table of its own", {"model": [(_IGNORED, _IGNORED + _BACK)]}),
    Example("in the table's order", {"model": [(_SORTED, "KEY_MAP")]}),
    Example("every row has a target of its own"),
    Example("reasons may repeat", {"model": [('"predicts text"),)', '"predicts text"), ("vit.", "predicts text"))')]}),
)
