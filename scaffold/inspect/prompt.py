"""What the pipeline reads of a request, and how it turns text into ids."""

from __future__ import annotations

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.program import Program
from scaffold.inspect.program.algebra import Search, options, walk
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.values import Attr, Call, Const, External, Op, Param, Seq, Value
from scaffold.inspect.tokens import find_tokens

ORDER = 1
KEYS = (
    "answers.prompt.kind",
    "answers.prompt.prompt_keys",
    "answers.prompt.extra_args",
    "answers.prompt.sampling_params",
    "detail.prompt.key",
    "detail.prompt.encode_location",
    "detail.prompt.begin_token",
    "detail.prompt.end_token",
    "detail.prompt.add_special_tokens",
    "detail.prompt.strip_markers",
    "detail.prompt.chat_template",
)
_ENCODERS = ("encode", "__call__", "tokenize", "batch_encode_plus")
_STRIPS = ("removeprefix", "removesuffix")


def answers(program: Program) -> dict[str, Fact]:
    reads = program.trace.reads
    facts: dict[str, Fact] = {}
    if program.entry is None:
        return facts
    keys = [(key, at) for (root, key), at in reads.items() if root == "prompt" and "." not in key]
    facts["answers.prompt.prompt_keys"] = _listed(keys)
    facts["answers.prompt.extra_args"] = _listed([(k, at) for (root, k), at in reads.items() if root == "extra_args"])
    facts["answers.prompt.sampling_params"] = _listed(
        [(k, at) for (root, k), at in reads.items() if root == "sampling_params"]
    )
    encoders = encode_calls(program)
    given = {key: at for (root, key), at in reads.items() if root == "prompt"}
    facts["answers.prompt.kind"] = _kind(given, encoders)
    if encoders:
        facts.update(_encoding(program, encoders[0]))
    return facts


def _listed(items: list[tuple[str, Evidence | None]]) -> Fact:
    return fact([key for key, _ in items], [at for _, at in items])


def _kind(keys: dict[str, Evidence | None], encoders: list[CallRecord]) -> Fact:
    kinds: dict[str, Evidence | None] = {}
    if encoders:
        kinds["text"] = encoders[0].at
    for key, at in keys.items():
        if key.endswith(("token_ids", "input_ids")):
            kinds.setdefault("token_ids", at)
        elif key.endswith(("embeds", "hidden_states")):
            kinds.setdefault("embeds", at)
    if not kinds and "prompt" in keys:
        # The text is read but what becomes of it was not followed.
        return fact(["text"], [keys["prompt"]], "likely")
    return fact(list(kinds), list(kinds.values())) if kinds else Fact(None, (), "unknown")


def encode_calls(program: Program) -> list[CallRecord]:
    """Calls that turn text of the request into ids, outermost text first."""
    made = len(program.trace.calls)
    known = program.notes.get("encode_calls")
    if isinstance(known, tuple) and known[0] == made:
        found: list[CallRecord] = known[1]
        return found
    of_request = Search(lambda node: isinstance(node, Param) and node.root in ("prompt", "extra_args"))
    found = []
    for record in program.trace.calls:
        if not isinstance(record.result, Call) or not is_tokenizer_call(record):
            continue
        given = [*record.args, *record.kwargs.values()]
        if any(of_request(v) for v in given[:2]):
            found.append(record)
    program.notes["encode_calls"] = made, found
    return found


def is_tokenizer_call(record: CallRecord) -> bool:
    """Whether a tokenizer is called, or its chat template applied."""
    target = record.func
    if isinstance(target, Attr):
        if target.name not in _ENCODERS and target.name != "apply_chat_template":
            return False
        target = target.base
    elif not isinstance(target, Call):
        return False
    for option in options(target):
        if isinstance(option, Call):
            made = option.func.base if isinstance(option.func, Attr) else option.func
            if isinstance(made, External) and any(w in made.path for w in ("Tokenizer", "Processor")):
                return True
    return isinstance(record.func, Attr) and record.func.name == "apply_chat_template"


def _encoding(program: Program, record: CallRecord) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    if record.at is not None:
        facts["detail.prompt.encode_location"] = fact(f"{record.at.file}:{record.at.line}", [record.at])
    flag = record.kwargs.get("add_special_tokens")
    if isinstance(flag, Const):
        facts["detail.prompt.add_special_tokens"] = fact(bool(flag.value), [flag.at])
    facts["detail.prompt.chat_template"] = fact(record.method == "apply_chat_template", [record.at])
    text = record.args[0] if record.args else next(iter(record.kwargs.values()))
    for node in walk(text):
        if isinstance(node, Param) and node.root == "prompt" and node.key:
            facts["detail.prompt.key"] = fact(node.key, [node.at])
            break
    markers = [
        (n.args[0].value, n.at)
        for n in walk(text)
        if isinstance(n, Call) and n.name in _STRIPS and n.args and isinstance(n.args[0], Const)
    ]
    facts["detail.prompt.strip_markers"] = fact([m for m, _ in reversed(markers)], [at for _, at in reversed(markers)])
    facts.update(_framing(program, record))
    return facts


def _framing(program: Program, record: CallRecord) -> dict[str, Fact]:
    """Ids put before and behind the text's."""
    names = {id(t.value): name for name, t in find_tokens(program).items()}
    best: list[Value] = []
    place: Evidence | None = None
    for edit in program.trace.edits:
        terms = _terms(edit.value)
        if len(terms) > len(best) and any(t is record.result for t in terms):
            best, place = terms, edit.value.at
    if not best:
        return {}
    position = next(i for i, t in enumerate(best) if t is record.result)
    before = [names.get(id(i)) for t in best[:position] if isinstance(t, Seq) for i in t.items]
    behind = [names.get(id(i)) for t in best[position + 1 :] if isinstance(t, Seq) for i in t.items]
    facts: dict[str, Fact] = {}
    if len(before) == 1 and before[0] is not None:
        facts["detail.prompt.begin_token"] = fact(before[0], [place])
    if len(behind) == 1 and behind[0] is not None:
        facts["detail.prompt.end_token"] = fact(behind[0], [place])
    return facts


def _terms(value: Value) -> list[Value]:
    if isinstance(value, Op) and value.op == "+":
        return _terms(value.args[0]) + _terms(value.args[1])
    return [value]
