"""What the pipeline reads of a request, and how it turns text into ids."""

from __future__ import annotations

import ast

from scaffold.inspect.facts import Evidence, Fact, fact
from scaffold.inspect.pre_process import pre_process
from scaffold.inspect.program import Program, once
from scaffold.inspect.program.algebra import Search, options, walk_all
from scaffold.inspect.program.trace import CallRecord
from scaffold.inspect.program.values import Attr, Call, Const, Op, Param, Seq
from scaffold.inspect.questions.tokens import find_tokens
from scaffold.source.syntax import looked_up
from scaffold.source.values import External, Unknown, Value

ORDER = 1
KEYS = (
    "answers.prompt.kind",
    "answers.prompt.prompt_keys",
    "answers.prompt.extra_args",
    "answers.prompt.sampling_params",
    "detail.prompt.key",
    "detail.prompt.begin_token",
    "detail.prompt.end_token",
    "detail.prompt.add_special_tokens",
    "detail.prompt.chat_template",
)
_ENCODERS = ("encode", "__call__", "tokenize", "batch_encode_plus")


EXTRA = "extra_args"


def answers(program: Program) -> dict[str, Fact]:
    facts: dict[str, Fact] = {}
    if program.entry is None:
        return facts
    before = pre_process(program)
    reads = {k: at for k, at in program.trace.reads.items() if k not in before.own or k in before.reads}
    reads |= {k: at for k, at in before.reads.items() if k not in reads}
    keys = [(key, at) for (root, key), at in reads.items() if root == "prompt" and "." not in key]
    facts["answers.prompt.prompt_keys"] = _listed(keys)
    extra: list[tuple[str, Evidence | None]] = [(k, at) for (root, k), at in reads.items() if root == "extra_args"]
    missed = [] if extra else list(_asked_keys(program).items())
    facts["answers.prompt.extra_args"] = fact([k for k, _ in missed], [at for _, at in missed], "likely")
    if not missed:
        facts["answers.prompt.extra_args"] = _listed(extra)
    facts["answers.prompt.sampling_params"] = _listed(
        [(k, at) for (root, k), at in reads.items() if root == "sampling_params"]
    )
    if not before.followed or isinstance(program.result, Unknown):
        # Not everything that is read of a request was seen.
        facts = {k: Fact(f.value, f.evidence, "likely") for k, f in facts.items()}
    encoders = encode_calls(program)
    given = {key: at for (root, key), at in reads.items() if root == "prompt"}
    facts["answers.prompt.kind"] = _kind(given, encoders)
    read_by_model = _not_rewritten(program, encoders)
    if read_by_model:
        facts.update(_encoding(program, read_by_model[0]))
        key = _key(encoders)
        if key is not None:
            facts["detail.prompt.key"] = fact(key.key, [key.at])
    return facts


def _key(encoders: list[CallRecord]) -> Param | None:
    """Where the request's words stand: its own prompt, else the one key that text is read under."""
    texts = [r.arguments[0] for r in encoders]
    read = [n for n in walk_all(texts) if isinstance(n, Param) and n.root == "prompt" and n.key]
    found = {n.key: n for n in reversed(read) if "neg" not in n.key and "uncond" not in n.key}
    if "prompt" in found:
        return found["prompt"]
    return next(iter(found.values())) if len(found) == 1 and not any("." in key for key in found) else None


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
    return _encode_calls(program, len(program.trace.calls))


@once
def _encode_calls(program: Program, made: int) -> list[CallRecord]:
    """The same among the first calls, to which others may be added."""
    of_request = Search(lambda node: isinstance(node, Param) and node.root in ("prompt", "extra_args"))
    found: list[CallRecord] = []
    for record in program.trace.calls[:made]:
        if not isinstance(record.result, Call) or not is_tokenizer_call(record):
            continue
        given = record.arguments
        if any(of_request(v) for v in given[:2]):
            found.append(record)
    return found


def _not_rewritten(program: Program, encoders: list[CallRecord]) -> list[CallRecord]:
    """Those whose ids no language model continues: it writes another prompt, which is encoded in its turn."""
    given = [v for r in program.trace.calls if r.method == "generate" for v in r.arguments]
    read = {id(node) for node in walk_all(given)}
    return [record for record in encoders if id(record.result) not in read]


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
    flag = record.kwargs.get("add_special_tokens")
    if isinstance(flag, Const):
        facts["detail.prompt.add_special_tokens"] = fact(bool(flag.value), [flag.at])
    facts["detail.prompt.chat_template"] = fact(record.method == "apply_chat_template", [record.at])
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


MOST_TERMS = 1000


def _terms(value: Value) -> list[Value]:
    """The first terms of a sum, whose parts may be shared so often that nobody can list them all."""
    found: list[Value] = []
    pending = [value]
    while pending and len(found) < MOST_TERMS:
        one = pending.pop()
        if isinstance(one, Op) and one.op == "+":
            pending += one.args[::-1]
        else:
            found.append(one)
    return found


def _asked_keys(program: Program) -> dict[str, Evidence]:
    """Constant keys that methods of the class ask ``extra_args`` of a request for, in the order of the source."""
    found: dict[str, Evidence] = {}
    for owner, nodes in program.nodes:
        for node in nodes:
            table, key = looked_up(node) or (None, None)
            named = isinstance(table, ast.Attribute) and table.attr == EXTRA
            if named and isinstance(key, ast.Constant) and isinstance(key.value, str):
                found.setdefault(key.value, Evidence(owner.module.file, key.lineno))
    return found
