#!/usr/bin/env python3
"""Writes jinja_cases.jsonl: templates, and what jinja2 makes of them with the settings of transformers' chat templates.

usage: make_jinja_cases.py OUT [SEED]      (with jinja2 3.1.6 and transformers 5, as in tests/fixtures/requirements.txt or newer)

A line is [template, text] or [template, null] where jinja2 raises an error. All templates have the variables VALUES. The
first cases are written, the others are drawn: expressions of operators, filters, tests and methods on values of all types.
"""
import copy
import json
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
WRITTEN = r"""
{{ '%d items' % 3 }}|{{ '%5.2f|%-8s|%+d|%05d|%x|%X|%#o' % (x, 'ab', 3, -42, 255, 255, 8) }}
{{ '%(name)s is %(age)03d' % rows[0] }}|{{ '%s' % [1, 'a'] }}|{{ '%r %a %c %%' % ('é', 'é', 65) }}
{{ '%e %E %g %G %.3g %#g' % (x, 12345.678, 1e-5, 1e20, 1234.5, 1.0) }}|{{ '%10.3s|' % 'abcdef' }}|{{ '%*d' % (5, 42) }}
{{ '%d' % 'a' }}
{{ '%s %s' % ('a',) }}
{{ '%s' % ('a', 'b') }}
{{ num|int }}|{{ '4_2'|int }}|{{ '0x1F'|int(base=16) }}|{{ '42.9'|int }}|{{ 'abc'|int(5) }}|{{ 'ff'|int(base=16) }}|{{ '٣'|int }}|{{ n|int }}|{{ -2.9|int }}|{{ 'inf'|int }}
{{ 'aaaa'|replace('a', 'b', 2) }}|{{ 'abc'|replace('', '-') }}|{{ 'abc'|replace('', '-', 2) }}|{{ 5|replace(5, 6) }}
{{ ''|default('x', boolean=true) }}|{{ ''|default('x') }}|{{ z|default('x', true) }}|{{ nope|default }}|{{ nope|d('y') }}|{{ n|default('x') }}
{{ text|truncate(20) }}|{{ text|truncate(20, true) }}|{{ text|truncate(20, end='') }}|{{ text|truncate(84, leeway=0) }}|{{ 'foo bar baz qux'|truncate(11) }}|{{ 'foo bar baz qux'|truncate(11, False, '...', 0) }}
{{ text|wordcount }}|{{ u|wordcount }}|{{ text|wordwrap(15) }}|{{ text|wordwrap(5, wrapstring='/') }}|{{ text|wordwrap(9, false) }}|{{ text|wordwrap(12, break_on_hyphens=false) }}
{{ '42'.zfill(5) }}|{{ '-42'.zfill(5) }}|{{ '+'.zfill(3) }}|{{ "they're bill's".title() }}|{{ "they're bill's (foo)-bar"|title }}|{{ 'hELLO wORLD'.capitalize() }}|{{ 'straße'.upper() }}|{{ 'ß'.capitalize() }}
{{ 'x'.center(6) }}|{{ 'xy'.center(5, '*') }}|{{ 'x'|center(5) }}|{{ 'a'.ljust(3, '.') }}|{{ 'a'.rjust(3) }}|{{ 'a\tb'.expandtabs(4) }}
{{ 1e15 }} {{ 1e16 }} {{ 1e-4 }} {{ 1e-5 }} {{ 123456789.123 }} {{ 1e300 * 1e10 }} {{ 0.1 + 0.2 }} {{ 1.0 }} {{ -0.0 }} {{ e }} {{ tiny }} {{ 100000000000000000000.0 }}
{{ '\U0001F600' }}|{{ '\x41\101\u00e9' }}|{{ '\q\a' | tojson }}|{{ 'a\
b' }}|{{ "\"" }}|{{ '\'' }}
{{ '{} {1}'.format(1, 2) }}
{{ '{0} {1} {0}'.format('a', 'b') }}|{{ '{:>8}|{:<8}|{:^8}|{:*^9}'.format('a', 'b', 'c', 'd') }}|{{ '{:08.3f}|{:+d}|{:,}|{:_}|{:x}|{:#b}|{:e}|{:%}'.format(3.14159, 5, 1234567, 1234567, 255, 5, 12345.6789, 0.25) }}
{{ '{a.b} {a[b]} {c[0]}'.format(a=d, c=l) }}|{{ '{!r:>6}|{{}}|{:{}}'.format('a', 'b', 5) }}|{{ '{:.3}|{:.3s}|{:5}|{:<5}|'.format('abcdef', 'abcdef', 42, 42) }}|{{ '{:.3}|{:g}|{:}|{:10}|'.format(3.0, 1e10, 2.5, 2.5) }}|{{ '{:,.2f}'.format(1234567.891) }}|{{ '{:012,}'.format(1234567) }}
{{ '{}'.format(t) }}|{{ '{:d}'.format(t) }}|{{ '{:>5}'.format(t) }}|{{ '{}'.format(n) }}
{{ '{:d}'.format('a') }}
{{ '{:5}'.format(n) }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ -2 ** 2 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 10 ** 30 }} {{ big * 1000 }}
{{ 1 / 0 }}
{{ 2 ** 3 ** 2 }} {{ 1 + 2 * 3 - 4 / 2 }} {{ 'a' ~ 1 ~ none ~ x }} {{ not t or f and t }} {{ 1 < 2 < 3 > 2 }} {{ 1 == 1.0 == t }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1, 2) == (1, 2) }}
{{ 1 < 'a' }}
{{ n + 1 }}
{{ 'a' + 1 }}
{{ 'a' * 3 }}|{{ [1] * 2 }}|{{ 2 * (1, 2) }}|{{ 'a' * -1 }}|{{ t + t }}|{{ -t }}|{{ +x }}
{{ (1,) }} {{ (1, 2) }} {{ () }} {{ [] }} {{ {} }} {{ {'a': (1, 'x')} }} {{ 1, 2 }} {{ [none, true, 1.5, 'q"', "q'", "q'\""] }} {{ ['\n\t\\\x01\u200b\xa0é'] }}
{{ nope }}|{{ nope|length }}|{{ nope|list }}|{{ nope|join }}|{{ nope ~ 'a' }}|{{ nope == nope2 }}|{{ nope is none }}|{{ 'a' in nope }}|{{ [nope] }}|{{ nope|upper }}|{{ nope or 'x' }}|{{ d.zzz }}|{{ d['zzz'] }}|{{ l[9] }}|{{ s[99] }}
{{ nope.x }}
{{ nope[0] }}
{{ nope() }}
{{ nope + 1 }}
{{ nope < 1 }}
{{ nope|int }}
{{ nope|tojson }}
{{ -nope }}
{{ d.items() }}|{{ d.keys() }}|{{ d.values() }}|{{ range(3) }}|{{ range(1, 9, 3)|list }}|{{ d|items|list }}|{{ d.get('b') }}|{{ d.get('q', 5) }}|{{ d|list }}|{{ d|length }}|{{ 'b' in d }}
{{ {'items': 1, 'keys': 2}.items() }}|{{ {'items': 1}['items'] }}|{{ {'items': 1}.values()|list }}|{{ {1: 'a', 1.0: 'b', true: 'c'} }}|{{ {(1, 2): 3}[(1, 2)] }}|{{ {'a': 1}.update }}
{{ {[1]: 2} }}
{{ l.append(4) }}
{{ d.update({}) }}
{{ d.pop('b') }}
{{ s.__class__ }}|{{ d.__class__ }}|{{ l.append }}|{{ {'_a': 1}._a }}
{{ s.__class__.__mro__ }}
{{ s[1:4] }}|{{ s[::-1] }}|{{ s[-3:] }}|{{ u[6:9] }}|{{ l[1:] }}|{{ l[:-1] }}|{{ l[::-2] }}|{{ l[5:] }}|{{ l[-9:2] }}|{{ (1, 2, 3)[1:] }}|{{ range(10)[2:8:2] }}|{{ s[-1] }}|{{ l[-1] }}|{{ u[6] }}|{{ s[none:2] }}
{{ l[::0] }}
{{ n[1:] }}
{{ d[1:] }}
{{ words|sort }}|{{ words|sort(case_sensitive=true) }}|{{ words|sort(reverse=true) }}|{{ rows|sort(attribute='age,name')|map(attribute='name')|list }}|{{ rows|sort(attribute='name')|map(attribute='name')|join(',') }}|{{ d|dictsort }}|{{ {'b': 2, 'A': 3, 'c': 1}|dictsort(by='value') }}|{{ {'b': 2, 'A': 3, 'c': 1}|dictsort(true, reverse=true) }}
{{ mixed|sort }}
{{ words|unique|list }}|{{ words|unique(true)|list }}|{{ l|min }}|{{ l|max }}|{{ words|min }}|{{ words|max }}|{{ nil|max }}|{{ rows|max(attribute='age') }}|{{ rows|sum(attribute='age') }}|{{ l|sum(start=10) }}|{{ [0.5, 0.25]|sum }}|{{ [[1], [2]]|sum(start=[]) }}
{{ words|sum }}
{% for g in rows|groupby('age') %}{{ g.grouper }}:{{ g.list|length }}:{{ g[0] }} {% endfor %}{% for k, v in rows|groupby('name') %}{{ k }}{{ v|length }}{% endfor %}{{ rows|groupby('missing', default='-')|map(attribute=0)|list }}
{{ l|map('string')|list }}|{{ words|map('upper')|join }}|{{ rows|map(attribute='tags', default='none')|list }}|{{ words|map('replace', 'a', 'x')|list }}|{{ l|select('odd')|list }}|{{ l|reject('gt', 1)|list }}|{{ rows|selectattr('age', 'eq', 30)|map(attribute='name')|list }}|{{ rows|rejectattr('tags')|list|length }}|{{ mixed|select|list }}|{{ mixed|select('string')|list }}
{{ [1, 2, 3, 4, 5]|batch(2)|list }}|{{ [1, 2, 3, 4, 5]|batch(2, 0)|list }}|{{ [1, 2, 3, 4, 5]|slice(3)|list }}|{{ [1, 2, 3, 4, 5]|slice(3, 'x')|list }}|{{ l|first }}|{{ l|last }}|{{ nil|first }}|{{ s|first }}|{{ l|reverse|list }}|{{ s|reverse }}|{{ d|first }}
{% set g = l|map('string') %}{{ g|list }}{{ g|list }}|{% set r = l|reverse %}{{ r|first }}{{ r|list }}
{{ l|map('string')|length }}
{{ l|map('string')|last }}
{{ 2.5|round }}|{{ 3.5|round }}|{{ 2.675|round(2) }}|{{ 42|round }}|{{ 1234|round(-2) }}|{{ 2.1|round(method='ceil') }}|{{ 2.19|round(1, 'floor') }}|{{ -2.5|round }}|{{ 0.5|round|int }}|{{ -3|abs }}|{{ -2.5|abs }}|{{ '3.5'|float }}|{{ 'x'|float }}|{{ 'x'|float(1) }}|{{ '1e3'|float }}
{{ text|indent }}|{{ text|indent(2, true) }}|{{ text|indent('> ', blank=true) }}|{{ 'a'|indent(first=true) }}
{{ '<a & "b">'|e }}|{{ '<a>'|escape ~ '<' }}|{{ ('<a>'|e) + '<' }}|{{ ['<'|e] }}|{{ '<'|e|e }}|{{ '<'|safe|e }}|{{ '<'|e|forceescape }}|{{ 1000|filesizeformat }}|{{ 1|filesizeformat }}|{{ 123456789|filesizeformat }}|{{ 123456789|filesizeformat(true) }}|{{ 'a b/ü?'|urlencode }}|{{ {'a b': 'c/d', 'e': 1}|urlencode }}|{{ {'a': 1, 'b': none, 'c': '<'}|xmlattr }}
{{ '  a '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ l|string }}|{{ 5|string|length }}|{{ l|join(', ') }}|{{ rows|join('-', 'name') }}|{{ s|list }}|{{ s|length }}|{{ u|length }}|{{ 'a,b'|format }}|{{ '%s-%s'|format(1, 'b') }}|{{ '%(a)s'|format(a=2) }}|{{ s|attr('upper') is callable }}
{{ d|tojson }}|{{ d|tojson(indent=2) }}|{{ d|tojson(ensure_ascii=true) }}|{{ d|tojson(sort_keys=true, separators=(',', ':')) }}|{{ (1, 'a')|tojson }}|{{ {1: none, 2.5: true, none: 1}|tojson }}|{{ [e, tiny, 1e16, 1.0, big]|tojson }}|{{ '\x7f\x1f\u2028/'|tojson }}
{{ l|map('string')|tojson }}
{{ d.keys()|tojson }}
{{ 'a b  c'.split() }}|{{ 'a,b,,c'.split(',') }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'a b c'.rsplit(' ', 1) }}|{{ 'a b c'.rsplit(none, 1) }}|{{ 'a  b  c'.split(maxsplit=1) }}|{{ 'a\nb\r\nc'.splitlines() }}|{{ 'a\nb'.splitlines(true) }}|{{ 'a=b=c'.partition('=') }}|{{ 'a=b=c'.rpartition('=') }}|{{ 'abc'.partition('x') }}|{{ 'abc'.rpartition('x') }}
{{ 'a'.split('') }}
{{ 'banana'.find('an') }}|{{ 'banana'.rfind('an') }}|{{ 'banana'.find('an', 2) }}|{{ 'banana'.find('x') }}|{{ 'banana'.index('n') }}|{{ 'banana'.count('a') }}|{{ 'banana'.count('a', 2, 4) }}|{{ 'banana'.replace('a', 'o', 1) }}|{{ 'banana'.startswith('an', 1) }}|{{ 'banana'.endswith(('x', 'na')) }}|{{ u.find('漢') }}|{{ u.count('') }}|{{ 'abc'.find('', 3) }}|{{ 'abc'.find('', 4) }}
{{ 'banana'.index('x') }}
{{ 'aB'.swapcase() }}|{{ 'Straße'.casefold() }}|{{ 'aBc'.lower() }}|{{ 'ΑΣ'.lower() }}|{{ '-'.join(['a', 'b']) }}|{{ '-'.join('abc') }}|{{ 'xxabxx'.strip('x') }}|{{ 'xxab'.lstrip('x') }}|{{ 'abxx'.rstrip('x') }}|{{ 'prefix'.removeprefix('pre') }}|{{ 'a.py'.removesuffix('.py') }}
{{ '-'.join([1]) }}
{{ '12'.isdigit() }}{{ '²'.isdigit() }}{{ '²'.isdecimal() }}{{ '½'.isnumeric() }}{{ 'aé漢'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' \t'.isspace() }}{{ 'Ab Cd'.istitle() }}{{ 'ab'.islower() }}{{ 'AB1'.isupper() }}{{ 'a_1'.isidentifier() }}{{ '1a'.isidentifier() }}{{ 'é'.isascii() }}{{ 'a\n'.isprintable() }}{{ ''.isalpha() }}
{{ [1, 2, 1].count(1) }}|{{ [1, 2].index(2) }}|{{ (1, 2).count(2) }}|{{ (5).bit_length() }}|{{ (2.0).is_integer() }}|{{ x.real }}|{{ i.imag }}|{{ l.copy() }}|{{ {}.fromkeys(['a', 'b'], 1) }}
{{ [1].index(5) }}
{{ 1 is odd }}{{ 2 is even }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}{{ x is float }}{{ t is integer }}{{ i is integer }}{{ t is number }}{{ s is string }}{{ d is mapping }}{{ l is sequence }}{{ d is sequence }}{{ d.items() is sequence }}{{ range(2) is sequence }}{{ l|map('int') is iterable }}{{ i is iterable }}{{ nope is iterable }}{{ nope is sequence }}
{{ 'a' is in 'abc' }}{{ 1 is in [1] }}{{ 1 is eq 1 }}{{ 1 is ne(2) }}{{ 1 is lt 2 }}{{ 'ab' is lower }}{{ 'AB' is upper }}{{ n is none }}{{ nope is undefined }}{{ s is defined }}{{ 'upper' is filter }}{{ 'odd' is test }}{{ 'zzz' is filter }}{{ t is true }}{{ f is false }}{{ 1 is true }}{{ t is sameas true }}{{ n is sameas none }}{{ range is callable }}{{ '<'|e is escaped }}{{ 3 is not odd }}{{ t is boolean }}
{% for v in l %}{{ loop.index }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.cycle('a', 'b') }}{{ loop.changed(v > 1) }}{{ loop.previtem is defined }}{{ loop.nextitem|default('-') }};{% endfor %}
{% for v in l if v > 1 %}{{ loop.index }}{{ v }}{{ loop.last }}{% else %}none{% endfor %}{% for v in nil %}x{% else %}none{% endfor %}{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }}{% endfor %}{% for k, (a, b) in {'x': (1, 2)}.items() %}{{ k }}{{ a }}{{ b }}{% endfor %}
{% for v in range(9) %}{% if v == 2 %}{% continue %}{% elif v == 5 %}{% break %}{% endif %}{{ v }}{% endfor %}|{% for c in 'añb' %}{{ c }}.{% endfor %}|{% for k in d %}{{ k }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for v in i %}{% endfor %}
{% for v in [{'n': 1, 'c': [{'n': 2, 'c': []}]}] recursive %}{{ v.n }}{{ loop.depth }}[{{ loop(v.c) }}]{% endfor %}
{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}|{{ m(1, 3, 4, 5, k=6) }}|{{ m(b=1, a=0) }}|{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m }}|{{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}<{{ caller(a) }}|{{ caller is defined }}>{% endmacro %}{% call(v) m(5) %}[{{ v }}]{% endcall %}{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}
{% set a = 1 %}{% for v in l %}{{ a }}{% set a = v %}{{ a }}{% endfor %}{{ a }}{% if true %}{% set a = 9 %}{% endif %}{{ a }}{% with a = 5, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}{% macro m() %}{{ q }}{% endmacro %}{% set q = 7 %}{{ m() }}
{% set ns = namespace(a=1, b=[]) %}{% for v in l %}{% set ns.a = ns.a + v %}{% set ns.b = ns.b + [v] %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns }}{{ ns.zzz }}{{ ns['a'] }}{% set ns.c, q = 1, 2 %}{{ ns.c }}{{ q }}
{% set n.x = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d2), e2 = (3, 4), 5 %}{{ c }}{{ d2 }}{{ e2 }}{% set block %}x{{ a }}{% endset %}{{ block }}{% set up | upper | replace('A', 'B') %}xa{% endset %}{{ up }}{% filter upper | indent(2) %}a
b{% endfilter %}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}{% set j = joiner('; ') %}{{ j() }}a{{ j() }}b{{ dict(a=1, b=2) }}{{ dict({'x': 1}, y=2) }}{{ dict([('p', 1)]) }}
{{ 'a' if t }}|{{ 'a' if f }}|{{ 'a' if f else 'b' if f else 'c' }}|{{ ('a' if f).x }}
{% block one %}b{{ i }}{% endblock %}{% print i, s %}{{ [1, 2,] }}{{ {'a': 1,} }}{{ 'a' 'b' "c" }}{{ 1_000 }}{{ 0x1F }}{{ 0b11 }}{{ 0o17 }}{{ 1.5e3 }}{{ 1e3 }}{{ 12.0 }}
{{ x.y.z }}
{{ 5 | no_such }}
{% if false %}{{ 5 | no_such }}{% endif %}ok
{% if false %}{{ 5 is no_such }}{% endif %}ok
{% no_such %}
{% if %}
{{ 1 + }}
{{ (1 }}
{% for v in l %}
{{ raise_exception('x') }}
{{ range(1000000) }}
{{ 'a'.nope }}|{{ 5 .real }}|{{ l.0 }}|{{ deep.0.1.0 }}|{{ deep[1].k[0] }}|{{ deep[1]['k'] }}|{{ {'a': {'b': 1}}.a.b }}
{{ l(1) }}
{{ max(1, 2) }}
  {% if t %}
   a
  {%- endif %}
 b {%+ if t %} c {% endif -%}
   d {# note #}
  {# note -#}  e
{% raw %} {{ x }} {% endraw %}
{%- raw -%}  {% y %}  {%- endraw +%}
 f
{{- ' g ' -}}
   h
"""

BLANKS = ["a\r\nb\r\n", "a\rb", "\n", "\n\n", "{% if t %}\r\nx\r\n{% endif %}\r\n", "{{ 'a\r\nb' }}", " {% set a = 1 %} \n {{ a }}\n\n",
          "\t{%- if t -%}\n\n x \n\n{%- endif -%}\n\ty", "{#- a -#} b {#+ c +#} d", "  {{ i }}  \n  {%+ set a = 1 +%}\n z",
          "{% generation %}a{% set q = 1 %}{% endgeneration %}{{ q }}|", "  {%- generation -%} b {% endgeneration %}\nc\n"]

FILTERS = ["abs", "capitalize", "center(9)", "count", "d('q')", "default('q', true)", "dictsort", "e", "first", "float", "float(1)",
           "forceescape", "indent(2)", "int", "int(9)", "items|list", "join('-')", "last", "length", "list", "lower", "map('string')|list",
           "max", "min", "reverse|list", "round", "round(1)", "round(-1)", "round(1, 'ceil')", "select|list", "reject|list", "sort", "sort(true)",
           "string", "sum", "title", "tojson", "tojson(indent=1)", "tojson(ensure_ascii=true)", "trim", "truncate(9)", "truncate(8, true, '!', 0)",
           "unique|list", "upper", "urlencode", "wordcount", "wordwrap(7)", "replace('l', 'L', 1)", "batch(2)|list", "slice(2)|list",
           "map('upper')|list", "select('number')|list", "reject('string')|list", "filesizeformat", "format(3)", "attr('real')", "xmlattr"]
METHODS = ["capitalize()", "casefold()", "center(20, '.')", "count('l')", "endswith('d')", "expandtabs()", "find('o')", "index('o')", "isalnum()", "isalpha()",
           "isascii()", "isdecimal()", "isdigit()", "isidentifier()", "islower()", "isnumeric()", "isprintable()", "isspace()", "istitle()", "isupper()",
           "ljust(14)", "lower()", "lstrip()", "partition(' ')", "replace('l', 'L', 2)", "rfind('o')", "rjust(14, '_')", "rpartition(' ')", "rsplit(' ', 1)",
           "rstrip()", "split()", "split('l', 1)", "splitlines()", "startswith('H')", "strip()", "swapcase()", "title()", "upper()", "zfill(15)",
           "items()", "keys()|list", "values()", "get('b')", "copy()", "count(1)", "index(2)", "bit_length()", "is_integer()", "removeprefix('He')"]
TESTS = ["boolean", "defined", "divisibleby(3)", "eq(7)", "even", "false", "float", "ge(2)", "gt(2)", "in(l)", "in('abc')", "integer", "iterable", "le(2)",
         "lower", "lt('b')", "mapping", "ne(1)", "none", "number", "odd", "sameas(true)", "sequence", "string", "true", "undefined", "upper", "callable"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
FORMATS = ["'%s'", "'%d'", "'%5.1f'", "'%r'", "'%x'", "'%g'", "'%-6s|'", "'%+.2e'", "'%c'", "'%i%%'"]
SPECS = ["", "5", "<6", "^7", ">8", "*^9", "+", " ", "05", "08.2f", ",", "_", ".2", ".3f", "e", "g", ".2g", "%", "x", "#x", "b", "o", "d", "s", ".3s", "n", "10,.1f", "=+9"]
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
