#!/usr/bin/env python3
"""Writes message_cases.jsonl: conversations as clients and data sets have them, and what transformers renders of them.

usage: make_message_cases.py OUT [FOLDER]      (with jinja2 3.1.6 and transformers 5)

A line is [template, messages, tools, text]. transformers gets the same conversation in the form that it is defined for: arguments
as objects, no deprecated members, texts in one piece. With FOLDER (published templates, models/templates of llama.cpp for one), only
counts how many of its templates transformers renders each conversation with; the fixture has own templates in their style.
"""
import glob
import json
import sys

from transformers.utils.chat_template_utils import _normalize_chat_messages, render_jinja_template

TEMPLATES = {
    # Thoughts before texts, calls as JSON, in the style of Qwen.
    "calls": "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
             "{% if m.content is defined %}{{ m.content }}{% endif %}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}:"
             "{{ c.function.arguments | tojson }}</call>{% endfor %}<|end|>{% endfor %}",
    # Arguments one by one, in the style of GLM and Qwen Coder.
    "arguments": "{% for m in messages %}[{{ m.role }}]{{ m.content or '' }}{% if m.tool_calls %}{% for c in m.tool_calls %}"
                 "<f={{ c.function.name }}>{% for k, v in c.function.arguments.items() %}<{{ k }}>{{ v if v is string else v|tojson }}"
                 "</{{ k }}>{% endfor %}</f>{% endfor %}{% endif %}\n{% endfor %}",
    # Contents in parts, in the style of Gemma and Llama 4.
    "parts": "{% for m in messages %}({{ m.role }}){% if m.content is string %}{{ m.content | trim }}{% elif m.content is iterable and "
             "m.content is not none %}{% for p in m.content %}{{ p.text | trim }}{% endfor %}{% endif %};{% endfor %}",
    # A content whose absence is seen, in the style of DeepSeek and Mistral; gpt-oss's name of thoughts.
    "absence": "{% for m in messages %}{{ m.role }}:{{ 'content' in m }}:{{ m.content is none }}:{{ m.thinking | default('-') }}"
               ":{{ 'tool_calls' in m }}|{% endfor %}",
    "tools": "{{ tools | tojson }}{% for t in tools %}{% for k, v in t.function.parameters.properties.items() %}{{ k }}={{ v.type }} "
             "{% endfor %}{% endfor %}{{ messages | length }}",
}
USER = {"role": "user", "content": "weather?"}


def turn(**members):
    return {"role": "assistant", **members}


def call(**function):
    return turn(content=None, tool_calls=[{"id": "a", "type": "function", "function": {"name": "f", **function}}])


EMPTY = call(arguments={})
FULL = {"where": "Köln", "at": [1, 2.0], "a": None}
# What is given, and what it means; None: as it is given.
MESSAGES = [
    ([USER, call(arguments=json.dumps(FULL))], [USER, call(arguments=FULL)]),
    ([USER, call(arguments=FULL)], None),
    ([USER, call(arguments="")], [USER, EMPTY]),
    ([USER, call(arguments="null")], [USER, EMPTY]),
    ([USER, call(arguments=None)], [USER, EMPTY]),
    ([USER, call()], [USER, EMPTY]),
    ([USER, call(arguments='{"z": 1, "b": {"y": 2, "a": 3}}')], [USER, call(arguments={"z": 1, "b": {"y": 2, "a": 3}})]),
    ([USER, turn(content=None, function_call={"name": "f", "arguments": '{"b": 1}'})],
     [USER, turn(content=None, tool_calls=[{"type": "function", "function": {"name": "f", "arguments": {"b": 1}}}])]),
    ([{"role": "function", "name": "f", "content": "7"}], [{"role": "tool", "name": "f", "content": "7"}]),
    ([{"role": "developer", "content": "short"}, USER], [{"role": "system", "content": "short"}, USER]),
    ([USER, turn(content="yes", reasoning="hm")], None),
    ([USER, turn(content="yes", thinking="hm")], None),
    ([USER, turn(content="yes", reasoning_content="hm")], None),
    ([USER, turn(content=None, reasoning_content="hm")], None),
    ([USER, turn(reasoning_content="hm", tool_calls=None)], None),
    ([USER, turn(content="yes", weight=0)], [USER, turn(content="yes")]),
    ([USER, turn(content="yes", weight=1, name=None)], [USER, turn(content="yes")]),
    ([USER, turn(content=[{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}])],
     [USER, turn(content="yes", reasoning_content="hm")]),
]
PARTS = [{"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "input_text", "text": "b"}]}]
MEANT_PARTS = [{"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]}]
JOINED_PARTS = [{"role": "user", "content": "a b"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "z": {"type": "integer"}, "a": {"type": "string"}}}}}]


def rendered(template, messages, tools):
    messages = _normalize_chat_messages(json.loads(json.dumps(messages)))
    return render_jinja_template([messages], tools=tools, chat_template=template, bos_token="<s>", eos_token="</s>")[0][0]


def published(folder):
    for path in sorted(glob.glob(folder + "/**/*.jinja", recursive=True)):
        template = open(path, encoding="utf-8", newline="").read()
        taken = 0
        for given, meant in MESSAGES:
            try:
                rendered(template, meant or given, TOOLS)
                taken += 1
            except Exception:  # of the template's
                pass
        print(f"{path}: {taken} of {len(MESSAGES)}")


def main(path, folder=None):
    if folder:
        return published(folder)
    with open(path, "w", encoding="utf-8") as out:
        def write(name, given, meant, tools=None):
            text = rendered(TEMPLATES[name], meant, tools)
            out.write(json.dumps([TEMPLATES[name], given, tools, text], ensure_ascii=False, separators=(",", ":")) + "\n")
        for given, meant in MESSAGES:
            for name in ("calls", "arguments", "absence"):
                write(name, given, meant or given)
        write("parts", PARTS, MEANT_PARTS)
        write("calls", PARTS, JOINED_PARTS)
        write("tools", [USER], [USER], TOOLS)


if __name__ == "__main__":
    main(*sys.argv[1:])
