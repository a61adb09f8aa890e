#!/usr/bin/env python3
"""Writes jinja_cases.jsonl: templates, and what jinja2 makes of them with the settings of transformers' chat templates.

usage: make_jinja_cases.py OUT [SEED]      (with jinja2 3.1.6 and transformers 5, as in tests/fixtures/requirements.txt or newer)

A line is [template, text] or [template, null] where jinja2 raises an error. All templates have the variables VALUES. The
first cases are those of jinja_written.jinja, the others are drawn: expressions of operators, filters, tests and methods on
values of all types.
"""
import copy
import json
import pathlib
import random
import re
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

VALUES = {
    "n": None, "t": True, "f": False, "i": 7, "j": -3, "z": 0, "big": 12345678901234567890, "x": 2.5, "y": -0.1,
    "e": 1e20, "tiny": 1.5e-7, "s": "Hello, World", "u": "Größe ǆ 漢字 😀", "w": "  pad\t", "empty": "", "num": " 42 ",
    "text": "The quick brown fox-jumped over the lazy dog.\nSecond line, that's well-known -- isn't it?\n\nlast",
    "l": [3, 1, 2], "words": ["b", "A", "a", "C"], "mixed": [1, "a", None, 2.5, True], "nil": [], "deep": [[1, [2]], {"k": [3]}],
    "d": {"b": 1, "a": [None, {}], "é": ["→"]}, "none": {},
    "rows": [{"name": "Zoe", "age": 30, "tags": ["x"]}, {"name": "adam", "age": 25}, {"name": "Bob", "age": 30, "tags": []}],
}

# For the marks of generation and the rules of blanks there are cases in chat_cases.cpp, too.
WRITTEN = (pathlib.Path(__file__).parent / "jinja_written.jinja").read_text(encoding="utf-8")

BLANKS = ["a\r\nb\r\n", "a\rb", "\n", "\n\n", "{% if t %}\r\nx\r\n{% endif %}\r\n", "{{ 'a\r\nb' }}",
    " {% set a = 1 %} \n {{ a }}\n\n",
          "\t{%- if t -%}\n\n x \n\n{%- endif -%}\n\ty", "{#- a -#} b {#+ c +#} d", "  {{ i }}  \n  {%+ set a = 1 +%}\n z",
          "{% generation %}a{% set q = 1 %}{% endgeneration %}{{ q }}|", "  {%- generation -%} b {% endgeneration %}\nc\n"]

FILTERS = ["abs", "capitalize", "center(9)", "count", "d('q')", "default('q', true)", "dictsort", "e", "first", "float",
    "float(1)",
           "forceescape", "indent(2)", "int", "int(9)", "items|list", "join('-')", "last", "length", "list", "lower",
    "map('string')|list",
           "max", "min", "reverse|list", "round", "round(1)", "round(-1)", "round(1, 'ceil')", "select|list", "reject|list",
    "sort", "sort(true)",
           "string", "sum", "title", "tojson", "tojson(indent=1)", "tojson(ensure_ascii=true)", "trim", "truncate(9)",
    "truncate(8, true, '!', 0)",
           "unique|list", "upper", "urlencode", "wordcount", "wordwrap(7)", "replace('l', 'L', 1)", "batch(2)|list",
    "slice(2)|list",
           "map('upper')|list", "select('number')|list", "reject('string')|list", "filesizeformat", "format(3)", "attr('real')",
    "xmlattr"]
METHODS = ["capitalize()", "casefold()", "center(20, '.')", "count('l')", "endswith('d')", "expandtabs()", "find('o')",
    "index('o')", "isalnum()", "isalpha()",
           "isascii()", "isdecimal()", "isdigit()", "isidentifier()", "islower()", "isnumeric()", "isprintable()", "isspace()",
    "istitle()", "isupper()",
           "ljust(14)", "lower()", "lstrip()", "partition(' ')", "replace('l', 'L', 2)", "rfind('o')", "rjust(14, '_')",
    "rpartition(' ')", "rsplit(' ', 1)",
           "rstrip()", "split()", "split('l', 1)", "splitlines()", "startswith('H')", "strip()", "swapcase()", "title()",
    "upper()", "zfill(15)",
           "items()", "keys()|list", "values()", "get('b')", "copy()", "count(1)", "index(2)", "bit_length()", "is_integer()",
    "removeprefix('He')"]
TESTS = ["boolean", "defined", "divisibleby(3)", "eq(7)", "even", "false", "float", "ge(2)", "gt(2)", "in(l)", "in('abc')",
    "integer", "iterable", "le(2)",
         "lower", "lt('b')", "mapping", "ne(1)", "none", "number", "odd", "sameas(true)", "sequence", "string", "true",
    "undefined", "upper", "callable"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
FORMATS = ["'%s'", "'%d'", "'%5.1f'", "'%r'", "'%x'", "'%g'", "'%-6s|'", "'%+.2e'", "'%c'", "'%i%%'"]
SPECS = ["", "5", "<6", "^7", ">8", "*^9", "+", " ", "05", "08.2f", ",", "_", ".2", ".3f", "e", "g", ".2g", "%", "x", "#x", "b",
    "o", "d", "s", ".3s", "n", "10,.1f", "=+9"]
SLICES = ["[1:]", "[:-1]", "[::-1]", "[1:3]", "[-2:]", "[0]", "[-1]", "['b']", "[99]", "[::2]", "[5:1:-1]"]


def drawn(random_, names):
    """An expression."""
    name = lambda: random_.choice(names)
    kind = random_.randrange(9)
    if kind == 0:
        return f"{name()} {random_.choice(OPERATORS)} {name()}"
    if kind in (1, 2):
        return f"{name()}|{random_.choice(FILTERS)}"
    if kind == 3:
        return f"{name()}.{random_.choice(METHODS)}"
    if kind == 4:
        return f"{name()} is {random_.choice(('', 'not '))}{random_.choice(TESTS)}"
    if kind == 5:
        return f"{random_.choice(FORMATS)} % {name()}"
    if kind == 6:
        return "'{:" + random_.choice(SPECS) + "}'.format(" + name() + ")"
    if kind == 7:
        return f"{name()}{random_.choice(SLICES)}"
    return f"({name()} {random_.choice(OPERATORS)} {name()})|{random_.choice(FILTERS)}"


def rendered(template):
    """None: an error. Filters of jinja2 may change lists that they are given."""
    try:
        return _compile_jinja_template(template).render(**copy.deepcopy(VALUES))
    except Exception:  # of the template's, by whatever name
        return None


def written():
    """WRITTEN by lines; one that goes on is joined with the next."""
    pending = ""
    for line in WRITTEN.strip("\n").split("\n"):
        pending = pending + "\n" + line if pending else line
        if pending.endswith("\\") or (pending.count("{% filter") != pending.count("endfilter")) or pending.startswith("  {% if t %}"):
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def main(path, seed=50):
    random_ = random.Random(seed)
    names = [*VALUES, "nope", "range(4)", "(1, 'b')", "'%s!'", "'7'", "'1.5e3'", "1.5", "10", "'a'"]
    cases = [*written(), *BLANKS]
    while len(cases) < 2000:
        template = "{{ " + drawn(random_, names) + " }}"
        text = rendered(template)
        # Objects are printed with their address, and complex numbers are refused.
        if template not in cases and not (text and re.search(r" object at 0x|[0-9]j\)", text)):
            cases.append(template)
    with open(path, "w", encoding="utf-8") as out:
        out.write(json.dumps(VALUES, ensure_ascii=False, separators=(",", ":")) + "\n")
        for template in cases:
            out.write(json.dumps([template, rendered(template)], ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
