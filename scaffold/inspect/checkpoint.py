"""Which files are loaded, and how checkpoint keys become parameter names."""

from __future__ import annotations

from dataclasses import dataclass, field

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options, walk
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.trace import Conditions
from scaffold.inspect.program.values import Attr, Call, Const, External, Item, Map, Obj, Op, Param, Seq, Slice, Value
from scaffold.inspect.verdict import text_of, weight_sources

ORDER = 7
KEYS = (
    "answers.checkpoint.files",
    "answers.checkpoint.renames",
    "answers.checkpoint.stacked",
    "answers.checkpoint.ignored",
    "detail.checkpoint.loader_location",
    "detail.checkpoint.drops_unmatched",
)
WEIGHTS = "weights"
LOADER = "load_weights"
_NAME_TESTS = ("startswith", "endswith")


@dataclass
class Rules:
    """Rules in the order found, each once, with its place."""

    renames: dict[tuple[str, str], Evidence | None] = field(default_factory=dict)
    stacked: dict[tuple[str, str, str | int], Evidence | None] = field(default_factory=dict)
    ignored: dict[str, Evidence | None] = field(default_factory=dict)
    loaders: list[Evidence] = field(default_factory=list)
    filtered: Evidence | None = None


def answers(program: Program) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    files = _files(program)
    if files:
        facts["answers.checkpoint.files"] = fact(list(files), list(files.values()))
    rules = Rules()
    _follow_loader(program, program.pipeline, rules, set())
    if not rules.loaders:
        return facts
    facts["answers.checkpoint.renames"] = fact(
        [list(r) for r in rules.renames], list(rules.renames.values()) or list(rules.loaders)
    )
    facts["answers.checkpoint.stacked"] = fact(
        [list(r) for r in rules.stacked], list(rules.stacked.values()) or list(rules.loaders)
    )
    facts["answers.checkpoint.ignored"] = fact(
        list(rules.ignored), list(rules.ignored.values()) or list(rules.loaders), "likely"
    )
    place = rules.loaders[0]
    facts["detail.checkpoint.loader_location"] = fact(f"{place.file}:{place.line}", rules.loaders)
    if rules.filtered is not None:
        facts["detail.checkpoint.drops_unmatched"] = fact(True, [rules.filtered], "likely")
    return facts


def _files(program: Program) -> dict[str, Evidence | None]:
    """Weight files, or the pattern that the loader streams; names of a given checkpoint replace the pattern."""
    files: dict[str, Evidence | None] = {}
    for _, source in weight_sources(program):
        folder = text_of(source.kwargs.get("subfolder"))
        patterns = source.kwargs.get("allow_patterns_overrides")
        names = [text_of(i) for i in patterns.items] if isinstance(patterns, Seq) else []
        for name in [n for n in names if n] or ["*.safetensors"]:
            files.setdefault(f"{folder}/{name}" if folder else name, source.at)
    if program.headers is not None and any(f == "*.safetensors" for f in files):
        named = [str(getattr(f, "name", f)) for f in program.headers.files]
        place = files.pop("*.safetensors")
        files.update(dict.fromkeys(named, place))
    return files


def _follow_loader(program: Program, obj: Obj, rules: Rules, done: set[int], prefix: str = "") -> None:
    """Execute ``load_weights`` of an object on an unknown weight, then of the modules it hands weights to."""
    if id(obj.cls) in done or len(done) > 12:
        return
    done.add(id(obj.cls))
    found = obj.cls.find_method(LOADER)
    children = found is None
    if found is not None:
        rules.loaders.append(program.place(found[0], found[1]))
        edits, calls, skips = len(program.trace.edits), len(program.trace.calls), len(program.trace.skips)
        names = [a.arg for a in found[1].args.args[1:2]] or [WEIGHTS]
        program.invoke(obj, LOADER, {names[0]: Param(WEIGHTS, "")})
        _collect(program, rules, edits, skips)
        for record in program.trace.calls[calls:]:
            if record.method == LOADER and isinstance(record.result, Call):
                receiver = record.receiver
                if receiver is None or not any(isinstance(o, Obj) for o in options(receiver)):
                    children = True
                    _mapper(record.kwargs.get("mapper"), rules)
                    for option in options(receiver) if receiver is not None else []:
                        if isinstance(option, Call):
                            _skipped(option, rules)
    if children:
        program.ensure_ready(obj)
        for held in list(obj.attrs.values()):
            for option in options(held):
                if isinstance(option, Obj) and option.root is None and option.cls.is_module:
                    _follow_loader(program, option, rules, done)


def _mapper(value: Value | None, rules: Rules) -> None:
    """Tables of a ``WeightsMapper`` that the loader is really given."""
    for option in options(value) if value is not None else []:
        if isinstance(option, Call):
            for table in option.kwargs.values():
                for key, item in table.items.items() if isinstance(table, Map) else ():
                    target = default_of(item)
                    if isinstance(key, str) and isinstance(target, str):
                        rules.renames.setdefault((key, target), item.at)
                    elif isinstance(key, str) and target is None:
                        rules.ignored.setdefault(key, item.at)


def _skipped(loader: Call, rules: Rules) -> None:
    for name in ("skip_prefixes", "skip_substrs", "ignore_unexpected_prefixes"):
        given = loader.kwargs.get(name)
        for item in given.items if isinstance(given, Seq) else []:
            text = text_of(item)
            if text:
                rules.ignored.setdefault(text, item.at)


def from_checkpoint(value: Value) -> bool:
    """Whether a value derives from what is streamed out of the checkpoint."""
    return any(isinstance(n, Param) and n.root == WEIGHTS for n in walk(value))


def _collect(program: Program, rules: Rules, edits: int, skips: int) -> None:
    made = program.trace.edits[edits:]
    consumed = {id(a) for e in made if isinstance(e.value, Op) for a in e.value.args}
    for edit in made:
        value = edit.value
        if not from_checkpoint(value):
            continue
        if isinstance(value, Call):
            _from_method(value, edit.row, rules)
        elif isinstance(value, Op) and value.op in ("+", "format"):
            _from_concatenation(value, edit.conditions, rules)
        elif isinstance(value, Item) and id(value) not in consumed:
            cut = _cut(value)
            for prefix in _known_prefixes(edit.conditions, value.base):
                if cut == len(prefix):
                    rules.renames.setdefault((prefix, ""), value.at)
    for skip in program.trace.skips[skips:]:
        if skip.calls <= 1 and skip.conditions and skip.conditions[-1][1]:
            for text in _tested(skip.conditions[-1][0]):
                rules.ignored.setdefault(text, skip.at)
    if rules.filtered is None:
        for test in program.trace.tests:
            cond = test.cond
            if isinstance(cond, Op) and cond.op == "in" and from_checkpoint(cond.args[0]) and test.function:
                rules.filtered = test.at


def _from_method(value: Call, row: Value | None, rules: Rules) -> None:
    texts = [default_of(a) for a in value.args]
    if value.name == "replace" and len(texts) >= 2 and all(isinstance(t, str) for t in texts[:2]):
        source, target = texts[0], texts[1]
        if isinstance(row, Seq) and len(row.items) >= 3:
            cells = [default_of(i) for i in row.items]
            if source in cells and target in cells:
                shard = next((c for c in cells if c not in (source, target) and isinstance(c, str | int)), None)
                if shard is not None:
                    rules.stacked.setdefault((target, source, shard), row.items[0].at or value.at)
                    return
        rules.renames.setdefault((source, target), value.args[0].at or value.at)
    elif value.name in ("removeprefix", "removesuffix") and texts and isinstance(texts[0], str):
        rules.renames.setdefault((texts[0], ""), value.at)


def _from_concatenation(value: Op, conditions: Conditions, rules: Rules) -> None:
    """``new + name[len(old):]`` and ``new + name`` under a test of the name's prefix."""
    parts = value.args
    if len(parts) != 2 or not isinstance(parts[0], Const) or not isinstance(parts[0].value, str):
        return
    target, rest = parts[0].value, parts[1]
    cut = _cut(rest) if isinstance(rest, Item) else 0
    base = rest.base if isinstance(rest, Item) and cut else rest
    prefixes = _known_prefixes(conditions, base)
    for prefix in prefixes:
        if cut == 0:
            rules.renames.setdefault((prefix, target + prefix), value.at)
        elif cut is not None and cut <= len(prefix):
            rules.renames.setdefault((prefix, target + prefix[cut:]), value.at)
    if not prefixes and cut == 0 and isinstance(rest, Item | Call | Attr):
        rules.renames.setdefault(("", target), value.at)


def _cut(value: Item) -> int | None:
    """How many leading characters a slice drops."""
    if not isinstance(value.key, Slice):
        return 0
    lower = default_of(value.key.lower) if value.key.lower is not None else 0
    return lower if type(lower) is int and value.key.upper is None else None


def _known_prefixes(conditions: Conditions, base: Value) -> list[str]:
    """The prefixes that the name has here, by the innermost test."""
    for cond, truth in reversed(conditions):
        if not truth:
            continue
        found = [t for c in _alternatives(cond) if (t := _prefix_of(c)) is not None]
        if found:
            return found
    return []


def _alternatives(cond: Value) -> list[Value]:
    if isinstance(cond, Op) and cond.op in ("or", "and"):
        return [a for part in cond.args for a in _alternatives(part)]
    return [cond]


def _prefix_of(cond: Value) -> str | None:
    if isinstance(cond, Call) and cond.name == "startswith" and cond.args and from_checkpoint(cond.func):
        return text_of(cond.args[0])
    return None


def _tested(cond: Value) -> list[str]:
    """The texts that a test of a checkpoint's name looks for."""
    found: list[str] = []
    for part in _alternatives(cond):
        if isinstance(part, Call) and part.name in _NAME_TESTS and part.args and from_checkpoint(part.func):
            given = part.args[0]
            texts = [text_of(i) for i in given.items] if isinstance(given, Seq) else [text_of(given)]
            found += [t for t in texts if t]
        elif isinstance(part, Op) and part.op in ("in", "==") and len(part.args) == 2:
            text = text_of(part.args[0]) or text_of(part.args[1])
            if text and any(from_checkpoint(a) and _is_name(a) for a in part.args):
                found.append(text)
    return found


def _is_name(value: Value) -> bool:
    return not isinstance(value, External | Map)
