"""Short sources that ask for more memory or time than there is, as statements of a function."""

from __future__ import annotations

import textwrap


def _again(first: str, step: str, times: int = 40) -> str:
    return "\n".join([first, *[step] * times])


def _nested(head: str, times: int, last: str) -> str:
    lines = [" " * at + head.format(at=at) for at in range(times)]
    return "\n".join([*lines, " " * times + last])


GREEDY = {
    "squares": _again("x = 2", "x = x * x"),
    "product": _again("x = 3", "x *= x"),
    "power": "x = 10 ** 10 ** 10",
    "power of a name": _again("x = 7", "x = x ** 60"),
    "shift": "x = 1 << 10 ** 12",
    "rounding": "x = round(5, -10 ** 10)",
    "rounding up": "x = round(5.5, 10 ** 10)",
    "large literal": f"x = 0x{'f' * 20_000}\ny = float(x)\nz = str(x)\nw = [0] * x",
    "display": _again("x = [1]", "x = [*x, *x]"),
    "tuples in tuples": _again("x = (1,)", "x = (x, x)") + "\ny = {x: 1}\nz = x == (x, x)\nw = str(x)",
    "lists in lists": _again("x = [1]", "x = [x, x]") + "\ny = sorted(x)\nz = f'{x}'\nw = str(x)",
    "two towers": _again("x, y = (1,), (1,)", "x, y = (x, x), (y, y)") + "\nz = x == y\nw = x in [y]",
    "tables in tables": _again("x = {}", "x = {'a': x, 'b': x}") + "\ny = str(x)\nz = dict(x)",
    "appended towers": _again("x = [1]", "y = []\ny.append(x)\ny.append(x)\nx = y") + "\nz = str(x)",
    "itself": "x = []\nx.append(x)\ny = str(x)\nz = x == [x]\nx.extend(x)",
    "format string": _again("x = 'a'", "x = f'{x}{x}'"),
    "wide field": "x = f'{1:1000000000d}'",
    "percent": "x = '%1000000000d' % 1",
    "percent of a table": "x = '%(a)1000000000d' % {'a': 1}",
    "percent of a width": "x = '%*d' % (1000000000, 1)",
    "percent of texts": _again("x = 'a'", "x = '%s%s' % (x, x)"),
    "percent of precision": "x = '%.1000000000f' % 1.0",
    "format": "x = '{:1000000000d}'.format(1)\ny = '{0}' * 1000 * 1000 * 1000",
    "padding": "x = 'a'.zfill(10 ** 10)\ny = 'a'.ljust(10 ** 10)\nz = 'a\\t'.expandtabs(10 ** 10)",
    "replace": _again("x = 'aa'", "x = x.replace('a', 'aa')"),
    "replace nothing": _again("x = 'aa'", "x = x.replace('', x)", 8),
    "join": _again("x = 'aa'", "x = x.join([x, x, x])"),
    "added texts": _again("x = 'aa'", "x = x + x"),
    "added lists": _again("x = [1]", "x = x + x"),
    "added in place": _again("x = [1]", "x += x"),
    "extend": _again("x = [1]", "x.extend(x)"),
    "extend a copy": _again("x = [1]", "x.extend(list(x))"),
    "repeated list": "x = [0] * 10 ** 10",
    "repeated text": "x = 'a' * 10 ** 10",
    "repeated again": _again("x = [0]", "x = x * 60", 12),
    "sum": "x = sum(range(10 ** 12))",
    "sum of lists": _again("x = [[1]]", "x = [sum(x + x, [])]", 40),
    "list of a range": "x = list(range(10 ** 12))",
    "largest of a range": "x = max(range(10 ** 12))",
    "sorted range": "x = sorted(range(10 ** 12))",
    "range in a range": "x = [0.5 in range(10 ** 12), 0.5 == range(10 ** 12)]",
    "product of a list": "import math\nx = math.prod([10 ** 9] * 99999)",
    "zip": _again("x = [1]", "x = list(zip(x, x)) + list(zip(x, x))"),
    "chained": "import itertools\nx = list(itertools.chain.from_iterable([range(99999)] * 99999))",
    "chained arguments": "import itertools\nx = list(itertools.chain(*[range(99999)] * 99999))",
    "tensor": "import torch\nx = torch.zeros(10 ** 12)\ny = torch.linspace(0, 1, 10 ** 11)\nz = x.repeat(10 ** 9)",
    "powers of tensors": "import torch\nx = torch.tensor([3]).pow(10 ** 10)\ny = torch.tensor([3]) ** 10 ** 10",
    "comprehension": "x = [a for a in range(999) for b in range(999) for c in range(999) for d in range(999)]",
    "empty comprehension": "x = [a for a in range(9999) for b in range(9999) for c in range(9999) if False]",
    "small ranges": "x = [a " + " ".join(f"for {c} in range(8)" for c in "abcdefghijkl") + "]",
    "comprehensions in comprehensions": "x = " + "[" * 12 + "1" + " for a in range(8)]" * 12,
    "loops": _nested("for a{at} in range(99999):", 6, "pass"),
    "loops over little": _nested("for a{at} in range(8):", 30, "x = a1 + a2"),
    "loops over what is unknown": "from somewhere import many\n" + _nested("for a{at} in many:", 30, "x = a1"),
    "endless": "while True:\n    pass",
    "endless growth": "x = [1]\nwhile x:\n    x = x + x",
    "branches": "from somewhere import one\n" + _nested("if one(a{at}):", 40, "x = 1"),
    "branches with two sides": "from somewhere import one\n"
    + "\n".join(" " * at + f"if one({at}):" for at in range(40))
    + "\n"
    + " " * 40
    + "x = 1\n"
    + "\n".join(" " * at + f"else:\n{' ' * at} x = (x, {at})" for at in reversed(range(40))),
    "branches in a row": "from somewhere import one\nx = 1\n"
    + "\n".join(f"if one({at}):\n    x = (x, x)\nelse:\n    x = (x, {at})" for at in range(60)),
    "choices": "from somewhere import one\n" + _again("x = 1", "x = (x + x) if one(x) else (x - x)", 60),
    "chain": "from somewhere import one\nx0 = one()\n" + "\n".join(f"x{n + 1} = x{n} + x{n}" for n in range(60)),
    "chain of calls": "from somewhere import one\nx0 = one()\n"
    + "\n".join(f"x{n + 1} = one(x{n}, x{n})" for n in range(60)),
    "chain of items": "from somewhere import one\nx = one()\n"
    + "\n".join(["x = x[x]"] * 60)
    + "\ny = one()\n"
    + "\n".join(["y = y[y]"] * 60)
    + "\nz = x if one(1) else y",
    "long chain": "from somewhere import one\nx = one()\n" + "\n".join(["x = x + 1"] * 5000),
    "assignments at once": "a" + "".join(f" = a{n}" for n in range(5000)) + " = 1",
    "functions": "def f(n):\n    return f(n) + f(n)\nx = f(1)",
    "functions in functions": "\n".join(
        ["def f0(n):\n    return n + n"] + [f"def f{n + 1}(n):\n    return f{n}(f{n}(n))" for n in range(40)]
    )
    + "\nx = f40(1)",
    "pattern": "import re\nx = re.match('(a+)+$', 'a' * 60 + 'b')\ny = re.sub('(a|a)*$', '', 'a' * 60 + 'b')",
    "patterns": "import re\nx = re.match('a*a*a*a*a*a*a*b', 'a' * 5000)\ny = re.compile('a*a*a*a*b').match('a' * 999)",
    "digits": "x = int('9' * 5000)\ny = str(10 ** 5000)",
}

# Each asks for what one that is not named here asks for.
FURTHER = {
    *("product", "power of a name", "rounding up", "lists in lists", "appended towers", "percent of a table"),
    *("percent of a width", "percent of precision", "replace nothing", "added in place", "extend a copy"),
    *("repeated again", "sum of lists", "largest of a range", "chained arguments", "powers of tensors"),
    *("empty comprehension", "comprehensions in comprehensions", "loops over little", "branches with two sides"),
    *("chain of items", "long chain", "patterns"),
}


def in_body(greedy: str, indent: int) -> str:
    """Return the statements indented for a function, without the first indentation."""
    return textwrap.indent(greedy, " " * indent).lstrip()
