"""Which files are loaded, and how checkpoint keys become parameter names."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.key_edits import (
    Rules,
    cut_before,
    cut_of,
    ending,
    handed_on,
    held_names,
    is_cut_off,
    is_key,
    joins_cut_off,
    known_prefixes,
    leaves_out,
    pieced_together,
    put_on,
    said,
    whole_names,
)
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import options
from scaffold.inspect.program.name_tests import (
    WEIGHTS,
    certain_skip,
    from_checkpoint,
    tested,
)
from scaffold.inspect.program.numeric import default_of
from scaffold.inspect.program.trace import Conditions
from scaffold.inspect.program.values import Attr, Call, Const, Item, Map, Obj, Op, Param, Seq
from scaffold.inspect.report import FILES
from scaffold.inspect.weight_sources import opens_files, text_of, weight_files, weight_sources
from scaffold.source.values import Func, Value

ORDER = 7
KEYS = (
    FILES,
    "answers.checkpoint.renames",
    "answers.checkpoint.stacked",
    "answers.checkpoint.ignored",
    "detail.checkpoint.loader_location",
    "detail.checkpoint.rules",
    "detail.checkpoint.loader_prefix",
    "detail.checkpoint.second_prefix",
    "detail.checkpoint.second_names",
)

LOADER = "load_weights"
_HOW = {"prefix": "prefix", "suffix": "suffix"}


def answers(program: Program) -> dict[str, Fact]:
    """Return the facts of ``KEYS``."""
    return {**_checkpoint(program), **_loader_prefix(program)}


def _checkpoint(program: Program) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    files, sure = weight_files(program)
    if files:
        facts[FILES] = fact(list(files), list(files.values()), sure)
    rules = Rules()
    _follow_loader(program, program.pipeline, rules, set(), _filled(program))
    if not weight_sources(program):
        _own_loaders(program, rules)
        if rules.none and opens_files(program):
            # The files are read by hand, and what happens to their names was not followed.
            return facts
    if not rules.loaders:
        return facts
    rules.settle()
    if not rules.unread:
        facts["answers.checkpoint.renames"] = fact(
            [list(r) for r in rules.renames],
            list(rules.renames.values()) or list(rules.loaders),
            # Where names go both ways, what the model has decides.
            "likely" if any((new, old) in rules.renames for old, new in rules.renames) else "certain",
        )
    if rules.stacked or not (rules.unread or rules.divided):
        facts["answers.checkpoint.stacked"] = fact(
            [list(r) for r in rules.stacked],
            list(rules.stacked.values()) or list(rules.loaders),
            "likely" if rules.divided else "certain",
        )
    facts["answers.checkpoint.ignored"] = fact(
        list(rules.ignored), list(rules.ignored.values()) or list(rules.loaders), "likely"
    )
    place = rules.loaders[0]
    facts["detail.checkpoint.loader_location"] = fact(f"{place.file}:{place.line}", rules.loaders)
    facts["detail.checkpoint.rules"] = fact(_placed(rules), rules.loaders)
    return facts


def _filled(program: Program) -> set[str] | None:
    """The attributes of the pipeline that the streamed weights fill; None where that may be any."""
    prefixes = [text_of(source.kwargs.get("prefix")) for _, source in weight_sources(program)]
    if not prefixes or not all(prefixes):
        return None
    return {(prefix or "").partition(".")[0] for prefix in prefixes}


def _own_loaders(program: Program, rules: Rules) -> None:
    """Loaders of the pipeline's modules that its constructor hands a file's weights to."""
    done = {id(program.pipeline.cls)}
    for record in list(program.trace.calls):
        for held in options(record.receiver) if record.method == LOADER and record.receiver is not None else []:
            if isinstance(held, Obj) and held is not program.pipeline:
                _follow_loader(program, held, rules, done)


def _placed(rules: Rules) -> list[dict[str, str | int | None]]:
    """Return every rule with its own place; ``how`` says where in a key ``from`` is looked for.

    Skips are those that nothing but the key's name decides.
    """
    found: list[tuple[str, str, str, str | None, str | int | None, Evidence | None]] = []
    for (source, target), place in rules.renames.items():
        found.append(("rename", rules.how[source, target], source, target, None, place))
    for (target, source, shard), place in rules.stacked.items():
        found.append(("stacked", "contains", source, target, shard, place))
    for (how, text), place in rules.skipped.items():
        found.append(("skip", how, text, None, None, place))
    keys = ("op", "how", "from", "to", "shard", "file", "line")
    return [
        dict(zip(keys, (*row, place.file if place else None, place.line if place else None), strict=True))
        for *row, place in found
    ]


def _follow_loader(program: Program, obj: Obj, rules: Rules, done: set[int], filled: set[str] | None = None) -> None:
    """Execute ``load_weights`` of an object on an unknown weight, then of the modules it hands weights to.

    ``filled`` are the attributes that get any, where that is known.
    """
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
        made = program.trace.calls[calls:]
        rules.handed |= {id(a) for r in made if not isinstance(r.func, Func) for a in r.arguments}
        _collect(program, rules, edits, skips, obj is program.pipeline, said(made))
        for source, target, place in whole_names(program, made):
            rules.rename(source, target, place, "equal")
        rules.unread = rules.unread or pieced_together(program, program.trace.edits[edits:], made) is not None
        for record in program.trace.calls[calls:]:
            if record.method == LOADER and isinstance(record.result, Call):
                receiver = record.receiver
                if receiver is None or not any(isinstance(o, Obj) for o in options(receiver)):
                    children = True
                    _mapper(record.kwargs.get("mapper"), rules)
                    for option in options(receiver):
                        if isinstance(option, Call):
                            _skipped(option, rules)
    if children:
        program.execution.attributes.ensure_ready(obj)
        for name, held in list(obj.attrs.items()):
            for option in options(held) if filled is None or name in filled else []:
                if isinstance(option, Obj) and option.root is None and option.cls.is_module:
                    _follow_loader(program, option, rules, done)


def _mapper(value: Value | None, rules: Rules) -> None:
    """Tables of a ``WeightsMapper`` that the loader is really given."""
    for option in options(value):
        if isinstance(option, Call):
            for name, table in option.kwargs.items():
                for key, item in table.items.items() if isinstance(table, Map) else ():
                    if key == "*" and isinstance(table, Map) and not table.exact:
                        # Stands for keys that are not known.
                        continue
                    target = default_of(item)
                    if isinstance(key, str) and isinstance(target, str):
                        rules.rename(key, target, item.at, "prefix" if "prefix" in name else "contains")
                    elif isinstance(key, str) and target is None:
                        rules.ignored.setdefault(key, item.at)
                        rules.skipped.setdefault((_HOW.get(name.rpartition("_")[2], "contains"), key), item.at)


def _skipped(loader: Call, rules: Rules) -> None:
    for name in ("skip_prefixes", "skip_substrs", "ignore_unexpected_prefixes"):
        given = loader.kwargs.get(name)
        for item in given.items if isinstance(given, Seq) else []:
            text = text_of(item)
            if text:
                rules.ignored.setdefault(text, item.at)
                if name != "ignore_unexpected_prefixes":
                    rules.skipped.setdefault(("prefix" if name == "skip_prefixes" else "contains", text), item.at)


def _collect(program: Program, rules: Rules, edits: int, skips: int, own: bool, messages: set[int]) -> None:
    made = program.trace.edits[edits:]
    consumed = {id(a) for e in made if isinstance(e.value, Op) for a in e.value.args}
    joined = {id(a) for e in made if isinstance(e.value, Op) and id(e.value) not in messages for a in e.value.args}
    for edit in made:
        value = edit.value
        if not from_checkpoint(value):
            continue
        if isinstance(value, Call):
            if not (id(value) in joined and is_cut_off(value)):
                _from_method(value, edit.row, rules)
        elif isinstance(value, Op) and value.op in ("+", "format"):
            if joins_cut_off(value):
                found = put_on(value, edit.conditions)
                if found is not None:
                    rules.rename(found[1], found[2], value.at, found[0])
                rules.unread = rules.unread or (found is None and id(value) not in messages)
            else:
                _from_concatenation(value, edit.conditions, rules)
        elif isinstance(value, Item) and id(value) not in consumed:
            cut = cut_of(value)
            for prefix in known_prefixes(edit.conditions):
                if cut == len(prefix):
                    rules.anchor(prefix, "", value.at)
    for skip in program.trace.skips[skips:]:
        if skip.calls <= 1 and skip.conditions and skip.conditions[-1][1] and leaves_out(program, skip):
            for text in tested(skip.conditions[-1][0]):
                if not handed_on(program, skip, LOADER) or text.strip(".") not in held_names(program):
                    rules.ignored.setdefault(text, skip.at)
            for how, text in certain_skip(program, skip):
                # What a module's own loader is given has lost the prefix under which the checkpoint has it.
                if own or how in ("contains", "suffix"):
                    rules.skipped.setdefault((how, text), skip.at)


def _from_method(value: Call, row: Value | None, rules: Rules) -> None:
    texts = [default_of(a) for a in value.args]
    if not (isinstance(value.func, Attr) and is_key(value.func.base)):
        return
    if value.name == "replace" and len(texts) >= 2 and all(isinstance(t, str) for t in texts[:2]):
        source, target = texts[0], texts[1]
        if isinstance(row, Seq) and len(row.items) >= 3:
            cells = [default_of(i) for i in row.items]
            names = [c.strip(".") if isinstance(c, str) else c for c in cells]
            pair = (target.strip("."), source.strip("."))
            if all(name in names for name in pair):
                rest = cells[2:] if names[:2] == list(pair) else [c for c in cells if c not in (source, target)]
                shard = next((c for c in rest if isinstance(c, (str, int))), None)
                told = all(isinstance(i, Const) for i in row.items) or any(id(i) in rules.handed for i in row.items[2:])
                if shard is not None and not told:
                    # Beside a list or a function, what no loader is told is not a shard.
                    rules.divided = True
                    return
                if shard is not None:
                    rules.stacked.setdefault((target, source, shard), row.items[0].at or value.at)
                    return
        cells = [default_of(i) for i in row.items] if isinstance(row, Seq) else []
        if len(cells) == 2 and isinstance(cells[0], str) and cells[0] in source and isinstance(cells[1], (str, int)):
            rules.shards[source, target] = cells[1]
        rules.rename(source, target, value.args[0].at or value.at)
    elif value.name in ("removeprefix", "removesuffix") and texts and isinstance(texts[0], str):
        if value.name == "removeprefix":
            rules.anchor(texts[0], "", value.at)
        else:
            rules.rename(texts[0], "", value.at, "suffix")


def _from_concatenation(value: Op, conditions: Conditions, rules: Rules) -> None:
    """``new + name[len(old):]`` and ``new + name`` under a test of the name's prefix, and the same of its end."""
    parts = value.args
    end = ending(value, conditions) if len(parts) == 2 else None
    if end is not None:
        rules.rename(*end, value.at, "suffix")
    if len(parts) != 2 or not isinstance(parts[0], Const) or not isinstance(parts[0].value, str):
        return
    target, rest = parts[0].value, parts[1]
    cut = cut_of(rest) if isinstance(rest, Item) else 0
    base = rest.base if isinstance(rest, Item) and cut else rest
    if not is_key(base):
        return
    prefixes = known_prefixes(conditions)
    before = cut_before(base, conditions) if cut else ""
    for prefix in prefixes:
        if cut == 0:
            rules.anchor(prefix, target + prefix, value.at)
        elif cut is not None and cut <= len(prefix):
            rules.anchor(before + prefix, target + prefix[cut:], value.at)
    if not prefixes and cut == 0 and isinstance(rest, (Item, Call, Attr)):
        rules.anchor("", target, value.at)


# What the engine puts before the names of a checkpoint before the pipeline's loader sees them.


def _loader_prefix(program: Program) -> dict[str, Fact]:
    """``loader_prefix`` where one weight source streams the root and its prefix is a text; no prefix is an empty one.

    ``second_prefix`` is one that names a module whose parts the pipeline holds itself before, ``second_names`` these:
    vllm loads an embedding that stands twice under its first name, and raises where it comes under the second alone.
    """
    return {**_of_root(program), **_second(program)}


def _second(program: Program) -> dict[str, Fact]:
    held = list(program.pipeline.attrs.items())
    for _, source in weight_sources(program):
        prefix = text_of(source.kwargs.get("prefix")) or ""
        for place, (name, value) in enumerate(held):
            for module in options(value) if prefix == f"{name}." else []:
                if not isinstance(module, Obj):
                    continue
                program.execution.attributes.ensure_ready(module)
                before = {inner: {id(o) for o in options(part) if isinstance(o, Obj)} for inner, part in held[:place]}
                twice = [n for n, part in module.attrs.items() if before.get(n, set()) & {id(o) for o in options(part)}]
                if twice:
                    return {
                        "detail.checkpoint.second_prefix": fact(prefix, [source.at, module.at]),
                        "detail.checkpoint.second_names": fact(twice, [module.at]),
                    }
    return {}


def _of_root(program: Program) -> dict[str, Fact]:
    found = []
    for _, source in weight_sources(program):
        folder = source.kwargs.get("subfolder")
        if folder is None or (isinstance(folder, Const) and not folder.value):
            found.append(source)
    if len(found) != 1:
        return {}
    prefix = found[0].kwargs.get("prefix")
    text = "" if prefix is None else text_of(prefix)
    return (
        {"detail.checkpoint.loader_prefix": fact(text, [prefix.at if prefix is not None else found[0].at])}
        if text is not None
        else {}
    )
