#!/usr/bin/env python3
"""plait serve: answers that follow schemas, tool calls and thoughts.

usage: structured_test.py PLAIT FIXTURES [--large] [--templates FOLDER]

--templates: also calls in the forms of the chat templates (*.jinja) of a folder, such as vendor/llama.cpp/models/templates of the source
package of llama-cpp-python: pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36

The model has random weights, so that all that an answer has of a schema comes of its mask. What a model would write is had by the list
of choices, so that a text in each family's own form goes through the parser. Answers are validated by the package jsonschema, of this
Python or of the environment of bindings/python/get_python.sh; without it it prints NOT RUN.
"""
import concurrent.futures
import json
import os
import random
import re
import shutil
import sys
import tempfile
import typing
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server_test  # noqa: E402

MODEL = server_test.MODEL
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"

# Of each family what a chat template does with tools, calls and thoughts, as its documentation shows it; and a turn in its form: text, two
# calls if it can write them.
QWEN = """{%- if tools %}<|im_start|>system
# Tools
<tools>{% for tool in tools %}
{{ tool | tojson }}{% endfor %}
</tools><|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}{% if message.tool_calls %}{% for call in message.tool_calls %}{% if not loop.first or message.content %}
{% endif %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
LLAMA = """{{ bos_token }}{% if tools %}<|start_header_id|>system<|end_header_id|>

{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|eot_id|>{% endif %}{% for message in messages
%}{% if message.tool_calls %}{% if message.tool_calls | length != 1 %}{{ raise_exception("only one call") }}{% endif
%}<|start_header_id|>assistant<|end_header_id|>

{"name": "{{ message.tool_calls[0].function.name }}", "parameters": {{ message.tool_calls[0].function.arguments | tojson }}}<|eom_id|>{%
else %}<|start_header_id|>{{ message.role }}<|end_header_id|>

{{ message.content | trim }}<|eot_id|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""
MISTRAL = """{{ bos_token }}{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}{% for message in messages
%}{% if message.role == "user" %}[INST]{{ message.content }}[/INST]{% elif message.tool_calls %}[TOOL_CALLS][{% for call in
message.tool_calls %}{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}, "id": "{{ call.id }}"}{%
if not loop.last %}, {% endif %}{% endfor %}]{{ eos_token }}{% else %}{{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"""
MARKED = """{% if tools %}{{ tools | tojson }}{% endif %}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% if
message.tool_calls %}{% for call in message.tool_calls %}<function={{ call.function.name }}>{{ call.function.arguments | tojson
}}</function>{% endfor %}{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
THINKING = """{% for message in messages %}<|{{ message.role }}|>{% if message.role == "assistant"
%}{{ message.content.split("</think>")[-1] }}{% else %}{{ message.content }}{% endif %}<|end|>{% endfor %}{% if add_generation_prompt
%}<|assistant|><think>
{% endif %}"""
PLAIN = """{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}{% if add_generation_prompt
%}<|assistant|>{% endif %}"""

ONE, TWO = '{"city": "Bonn", "n": [1, {"a": "}"}]}', '{"city": "\\"x\\""}'
CALL = [("weather", json.loads(ONE))]
CALLS = CALL + [("time", json.loads(TWO))]
TURNS = {  # template, text, then thought, content, calls
    "qwen": (QWEN, f'Let me see.\n<tool_call>\n{{"name": "weather", "arguments": {ONE}}}\n</tool_call>\n<tool_call>\n'
             f'{{"name": "time", "arguments": {TWO}}}\n</tool_call>', None, "Let me see.", CALLS),
    "qwen_blanks": (QWEN, f'<tool_call>{{ "name":"weather","arguments":{ONE} }}</tool_call>', None, None, CALL),
    "qwen_thought": (QWEN, f'<think>\nThe city,\nthen.\n</think>\n\n<tool_call>\n{{"name": "weather", "arguments": {ONE}}}\n</tool_call>',
                     "The city,\nthen.", None, CALL),
    "qwen_text": (QWEN, "It is <b>warm</b> & {dry}.", None, "It is <b>warm</b> & {dry}.", []),
    "qwen_unknown": (QWEN, '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>', None,
                     '<tool_call>\n{"name": "other", "arguments": {}}\n</tool_call>', []),
    "llama": (LLAMA, f'{{"name": "weather", "parameters": {ONE}}}', None, None, CALL),
    "llama_text": (LLAMA, 'It is {"warm"}.', None, 'It is {"warm"}.', []),
    "llama_object": (LLAMA, '{"warm": true}', None, '{"warm": true}', []),
    "mistral": (MISTRAL, f'[TOOL_CALLS][{{"name": "weather", "arguments": {ONE}, "id": "abcdefghi"}}, {{"name": "time", "arguments": {TWO}'
                ', "id": "123456789"}]', None, None, CALLS),
    "marked": (MARKED, f"Well.<function=weather>{ONE}</function><function=time>{TWO}</function>", None, "Well.", CALLS),
    "thinking": (THINKING, "Hm, so.\n</think>\n\nYes.", "Hm, so.", "Yes.", []),
    "plain": (PLAIN, f'{{"name": "weather", "arguments": {ONE}}}', None, None, CALL),
    "plain_text": (PLAIN, "Yes & no.", None, "Yes & no.", []),
}


def tool(name, **properties):
    parameters = {"type": "object", "properties": properties, "required": sorted(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": "a tool", "parameters": parameters}}


SHORT = {"type": "string", "maxLength": 5}
TOOLS = [tool("weather", city=SHORT), tool("time", zone={"enum": ["a", "b"]}, n={"type": "integer", "minimum": 0, "maximum": 9})]

SCHEMAS = [
    {"type": "object", "properties": {"name": SHORT, "age": {"type": "integer", "minimum": 0, "maximum": 130}}, "required": ["name", "age"],
     "additionalProperties": False},
    {"type": "array", "items": {"enum": ["red", "green", 7, None]}, "minItems": 1, "maxItems": 4},
    {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"leaf": {"type": "boolean"},
     "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}}, "required": ["leaf", "next"], "additionalProperties": False}}},
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
    {"anyOf": [{"type": "number", "minimum": -1.5, "maximum": 2}, {"const": "none"}]},
    {"type": "object", "properties": {"at": {"type": "string", "format": "date"}, "ok": {"type": "boolean"}}, "required": ["at"],
     "additionalProperties": False},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, {"properties": {"b": SHORT}, "required": ["a", "b"]}],
     "additionalProperties": False, "properties": {"a": True, "b": True}},
    {"type": "array", "prefixItems": [{"type": "boolean"}, SHORT], "items": False, "minItems": 2},
    {"type": "object", "patternProperties": {"^x[0-9]$": {"type": "null"}}, "additionalProperties": False, "maxProperties": 2},
    {"type": "integer", "multipleOf": 5, "minimum": 10, "maximum": 1000},
]


def random_schema(source, depth=0):
    """A schema in the keywords that are followed."""
    kind = source.choice(["integer", "string", "enum", "boolean"] if depth > 2 else ["object", "array", "integer", "string", "enum", "any"])
    if kind == "object":
        names = source.sample(["a", "b", "long name", "\u00e4", "q\"q"], source.randint(1, 3))
        return {"type": "object", "properties": {name: random_schema(source, depth + 1) for name in names},
                "required": source.sample(names, source.randint(0, len(names))), "additionalProperties": False}
    if kind == "array":
        least = source.randint(0, 2)
        return {"type": "array", "items": random_schema(source, depth + 1), "minItems": least, "maxItems": least + source.randint(0, 2)}
    if kind == "integer":
        low = source.randint(-200, 200)
        return {"type": "integer", "minimum": low, "maximum": low + source.randint(0, 300)}
    if kind == "string":
        return {"type": "string", "minLength": source.randint(0, 2), "maxLength": source.randint(2, 6)}
    if kind == "any":
        return {"anyOf": [random_schema(source, depth + 1), {"type": "null"}]}
    return {"type": "boolean"} if kind == "boolean" else {"enum": source.sample(["x", "y z", 1, 2.5, None, True], 3)}


def in_parallel(calls):
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [one.result() for one in [pool.submit(call) for call in calls]]


class WithServer(unittest.TestCase):
    def serve(self, template=None, *words):
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        model = os.path.join(directory, MODEL)
        os.mkdir(model)
        for name in os.listdir(server_test.fixture(MODEL)):
            os.symlink(os.path.abspath(os.path.join(server_test.fixture(MODEL), name)), os.path.join(model, name))
        if template:
            with open(os.path.join(model, "chat_template.jinja"), "w") as file:
                file.write(template)
        return server_test.Server(self, "--option", "context=4096", *words, model=model)

    def check_turns(self, turns):
        """What a model writes, by name: its template, text, then thought, content and calls; whole and streamed."""
        servers = {}
        for name, (template, text, thought, content, calls) in turns.items():
            if template not in servers:
                servers[template] = self.serve(template)
            server = servers[template]
            fields = {"tools": TOOLS, "structured_outputs": {"choice": [text]}, "temperature": 0}
            with self.subTest(name):
                choice = self.chat(server, **fields)[0]
                message = choice["message"]
                self.assertEqual(message.get("reasoning_content"), thought)
                self.assertEqual(message["content"], content)
                got = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls", [])]
                self.assertEqual(got, calls)
                self.assertEqual(choice["finish_reason"], "tool_calls" if calls else "stop")
            with self.subTest(name + ", streamed"):
                body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 400, "stream": True, **fields}
                deltas = [part["choices"][0]["delta"] for part in server_test.frames(server.call("POST", CHAT, body)[2])]
                self.assertEqual("".join(delta.get("reasoning_content", "") for delta in deltas), thought or "")
                self.assertEqual("".join(delta.get("content", "") for delta in deltas), content or "")
                streamed = {}
                for delta in deltas:
                    for call in delta.get("tool_calls", []):
                        own = streamed.setdefault(call["index"], {"name": "", "arguments": "", "parts": 0})
                        own["name"] += call["function"].get("name", "")
                        own["arguments"] += call["function"].get("arguments", "")
                        own["parts"] += 1
                self.assertEqual([(own["name"], json.loads(own["arguments"])) for own in streamed.values()], calls)
                self.assertTrue(all(own["parts"] > 2 for own in streamed.values()), "arguments come as they are written")

    def check_required_calls(self, templates):
        """Names are of the tools, arguments follow their schemas, and the parser reads what the grammar makes."""
        parameters = {one["function"]["name"]: one["function"]["parameters"] for one in TOOLS}
        for template in templates:
            server = self.serve(template)
            finished = 0
            for seed in range(12):
                choice = {"type": "function", "function": {"name": "time"}} if seed % 3 == 2 else "required"
                fields = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": seed % 2 == 0}
                answer = self.chat(server, temperature=1.5, seed=seed, **fields)[0]
                if answer["finish_reason"] == "length":
                    continue
                finished += 1
                self.assertEqual(answer["finish_reason"], "tool_calls", (template[:40], answer))
                calls = answer["message"]["tool_calls"]
                self.assertIsNone(answer["message"]["content"])
                if seed % 2:
                    self.assertEqual(len(calls), 1)
                for call in calls:
                    name = call["function"]["name"]
                    if seed % 3 == 2:
                        self.assertEqual(name, "time")
                    jsonschema.validate(json.loads(call["function"]["arguments"]), parameters[name])
            self.assertGreater(finished, 3, template[:40])

    def chat(self, server, **fields):
        return server.post(CHAT, {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 400, **fields})["choices"]


class Schemas(WithServer):
    def test_every_finished_answer_is_valid(self):
        """At a temperature of 1.5, many at once, with free requests and several outputs in the same steps."""
        server = self.serve(PLAIN)
        source = random.Random(1)
        count = 2000 if LARGE else 120
        schemas = SCHEMAS + [random_schema(source) for _ in range(200 if LARGE else 50)]

        def one(index):
            schema = schemas[index % len(schemas)]
            fields = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
            if index % 4 == 3:
                fields = {"structured_outputs": {"json": schema}}
            if index % 5 == 4:
                fields = {}
            answers = self.chat(server, temperature=1.5, seed=index, n=1 + index % 2, **fields)
            return (schema if fields else None), answers

        finished = 0
        for begin in range(0, count, 30):
            for schema, answers in in_parallel([lambda i=i: one(i) for i in range(begin, min(begin + 30, count))]):
                for answer in answers if schema is not None else []:
                    if answer["finish_reason"] == "length":
                        continue
                    finished += 1
                    text = answer["message"]["content"]
                    jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)
        print(f"{finished} finished answers of {count} calls, over {len(schemas)} schemas, are valid")
        self.assertGreater(finished, count // 2)
        self.assertGreater(server.metric("plait_masks_total"), finished)

    def test_the_other_ways(self):
        server = self.serve(PLAIN)
        for index, (fields, matches) in enumerate([
                ({"response_format": {"type": "json_object"}}, lambda text: isinstance(json.loads(text), dict)),
                ({"structured_outputs": {"regex": "[ab]{2}\\d"}}, lambda text: text[0] in "ab" and text[2].isdigit() and len(text) == 3),
                ({"guided_regex": "(x|yy)"}, lambda text: text in ("x", "yy")),
                ({"structured_outputs": {"choice": ["one", "two \u00e4"]}}, lambda text: text in ("one", "two \u00e4")),
                ({"guided_choice": ["one"]}, lambda text: text == "one"),
                ({"guided_json": json.dumps({"const": 5})}, lambda text: json.loads(text) == 5),
                ({"guided_grammar": 'start: "a" b\nb: /[0-9]/'}, lambda text: text[0] == "a" and text[1:].isdigit()),
                ({"structured_outputs": {"grammar": "start: \"z\"+ \"y\""}}, lambda text: set(text[:-1]) == {"z"})]):
            for path in (CHAT, TEXT):
                body = {"model": MODEL, "prompt": "a", "messages": [{"role": "user", "content": "a"}], "max_tokens": 300, "seed": index,
                        "temperature": 1, **fields}
                choice = server.post(path, body)["choices"][0]
                text = choice["text"] if path == TEXT else choice["message"]["content"]
                if choice["finish_reason"] == "stop":
                    self.assertTrue(matches(text), (fields, text))
                else:
                    self.assertIn("json_object", str(fields))

    def test_properties_have_the_order_of_the_schema(self):
        server = self.serve(PLAIN)
        schema = {"type": "object", "properties": {name: {"type": "boolean"} for name in "zax"}, "required": list("zax"),
                  "additionalProperties": False}
        answer = self.chat(server, temperature=1, seed=1, structured_outputs={"json": schema})[0]
        self.assertEqual(list(json.loads(answer["message"]["content"])), list("zax"))

    def test_blanks_are_bounded(self):
        """Between JSON's tokens: none, a space, or a line break with an indentation of at most 20; none at all if that is asked for."""
        server = self.serve(PLAIN)
        schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9},
                                                   "b": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
                  "required": ["a", "b"], "additionalProperties": False}
        ids = {blank: server.post("/tokenize", {"model": MODEL, "prompt": blank, "add_special_tokens": False})["tokens"]
               for blank in (" ", "\n", "\t")}
        liked = {str(one[-1]): 30 for one in ids.values()}
        blanks = re.compile(r"[ \r\n\t]+")
        for seed in range(8):
            form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
            choice = self.chat(server, temperature=1, seed=seed, logit_bias=liked, response_format=form)[0]
            text = choice["message"]["content"]
            self.assertTrue(blanks.search(text))
            for run in blanks.findall(text):
                self.assertRegex(run, r"^( |\r?\n[ \t]{0,20})$")
            self.assertEqual(choice["finish_reason"], "stop")
            for fields in ({"json": schema}, {"json_object": True}):
                compact = self.chat(server, temperature=1, seed=seed, logit_bias=liked, max_tokens=100,
                                    structured_outputs={**fields, "disable_any_whitespace": True})[0]["message"]["content"]
                self.assertIsNone(blanks.search(re.sub(r'"(\\\\.|[^"\\\\])*"?', "", compact)), compact)

    def test_bounds_of_64_bits_and_of_floats(self):
        """Answers stay within them; what cannot be followed is an error."""
        server = self.serve(PLAIN)
        most, single, double = 2 ** 63, 3.4028234663852886e38, 1.7976931348623157e308
        parameters = {"type": "object", "properties": {"x": {"type": "integer", "minimum": -most, "maximum": most - 1}}, "required": ["x"]}
        tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
        for bounds in ({"type": "integer", "minimum": -most, "maximum": most - 1}, {"type": "integer", "minimum": -most},
                       {"type": "integer", "exclusiveMinimum": -most, "exclusiveMaximum": most}, {"type": "integer", "minimum": -1e300},
                       {"type": "integer", "minimum": 0, "maximum": 2 ** 64 - 1}, {"type": ["integer", "null"], "maximum": 1e20},
                       {"type": "number", "minimum": -single, "maximum": single}, {"type": "number", "minimum": -double, "maximum": double},
                       {"type": "number", "exclusiveMinimum": 0, "maximum": single}, {"type": "number", "minimum": 5e-324, "maximum": 1},
                       {"type": "number", "minimum": 1.1754943508222875e-38}, {"type": "number", "maximum": -1e-40}):
            for seed in range(3):
                body = {"model": MODEL, "prompt": "a", "max_tokens": 100, "temperature": 1, "seed": seed,
                        "structured_outputs": {"json": bounds}}
                choice = server.post(TEXT, body)["choices"][0]
                if choice["finish_reason"] == "stop":
                    jsonschema.validate(json.loads(choice["text"]), bounds)
        for bounds in ({"type": "integer", "minimum": -most, "maximum": -most}, {"type": "integer", "minimum": 1e19},
                       {"type": "number", "minimum": 1e300}):
            body = {"model": MODEL, "prompt": "a", "max_tokens": 100, "structured_outputs": {"json": bounds}}
            self.assertIn("beyond", server.post(TEXT, body, 400)["error"]["message"])
        answer = self.chat(server, tools=tools, tool_choice="required", temperature=1, seed=1)[0]
        if answer["finish_reason"] == "tool_calls":
            jsonschema.validate(json.loads(answer["message"]["tool_calls"][0]["function"]["arguments"]), parameters)

    def test_bad_schemas_are_told_with_their_place(self):
        server = self.serve(PLAIN)
        schema = "response_format.json_schema.schema"

        def named(value):
            return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}}

        wrong = {"type": "object", "properties": {"a": {"items": {"type": "strin"}}}}
        for fields, param in ((named(wrong), schema + ".properties.a.items"),
                              (named(5), schema), ({"response_format": {"type": "xml"}}, "response_format.type"),
                              ({"response_format": "json"}, "response_format"), (named({"not": {}}), schema),
                              ({"guided_regex": "("}, "guided_regex"), ({"guided_choice": []}, "guided_choice"),
                              ({"structured_outputs": {"choice": [1]}}, "structured_outputs.choice[0]"),
                              ({"guided_grammar": "x"}, "guided_grammar"), ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
                              ({"tools": TOOLS, "tool_choice": "required", "guided_regex": "a"}, "guided_regex"),
                              ({"tools": [{"type": "function"}]}, "tools[0].function"), ({"tools": 5}, "tools"),
                              ({"tool_choice": "required"}, "tool_choice"),
                              ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
                               "tool_choice.function.name"),
                              ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice")):
            body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 5, **fields}
            error = server.post(CHAT, body, 400)["error"]
            self.assertEqual(error["param"], param, error)
        self.assertEqual(server.call("GET", "/health")[0], 200)


class Tools(WithServer):
    def test_response_format_bounds_the_text_and_no_calls(self):
        """With tool_choice auto an answer follows the format or is calls; with required it is calls."""
        schema = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        parameters = {one["function"]["name"]: one["function"]["parameters"] for one in TOOLS}
        for template in (QWEN, MARKED, LLAMA, PLAIN):
            server = self.serve(template)
            found = {"text": 0, "calls": 0}
            for seed in range(16):
                choice = self.chat(server, temperature=2, seed=seed, tools=TOOLS, response_format=form)[0]
                if choice["finish_reason"] == "length":
                    continue
                if choice["message"].get("tool_calls"):
                    found["calls"] += 1
                    self.assertIsNone(choice["message"]["content"])
                else:
                    found["text"] += 1
                    jsonschema.validate(json.loads(choice["message"]["content"]), schema)
            self.assertGreater(min(found.values()), 0, (template[:30], found))
            choice = self.chat(server, temperature=1, seed=1, tools=TOOLS, tool_choice="required", response_format=form)[0]
            for call in choice["message"].get("tool_calls", []):
                if choice["finish_reason"] == "tool_calls":
                    jsonschema.validate(json.loads(call["function"]["arguments"]), parameters[call["function"]["name"]])
            self.assertFalse(choice["message"]["content"])

    def test_calls_of_other_forms(self):
        """Arguments before the name, none, or as a text; a mark that is only mentioned keeps its blanks."""
        for template, text, content, calls in (
                (QWEN, f'<tool_call>\n{{"arguments": {ONE}, "name": "weather"}}\n</tool_call>', None, CALL),
                (QWEN, '<tool_call>\n{"name": "weather"}\n</tool_call>', None, [("weather", {})]),
                (QWEN, '<tool_call>\n{"name": "weather", "arguments": null}\n</tool_call>', None, [("weather", {})]),
                (QWEN, '<tool_call>\n{"name": "weather", "arguments": "{\\"city\\": 1}"}\n</tool_call>', None, [("weather", {"city": 1})]),
                (LLAMA, f'{{"parameters": {ONE}, "name": "weather"}}', None, CALL),
                (LLAMA, '{"name": "weather"}', None, [("weather", {})]),
                (MARKED, "<function=weather></function>", None, [("weather", {})]),
                (QWEN, "It begins with \n\n<tool_call> , see.", "It begins with \n\n<tool_call> , see.", []),
                (MARKED, "It is  <function=NAME> here.", "It is  <function=NAME> here.", []),
                (LLAMA, '{"name": "unknown", "parameters": {}}', '{"name": "unknown", "parameters": {}}', [])):
            server = self.serve(template)
            for stream in (False, True):
                body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 400, "tools": TOOLS,
                        "structured_outputs": {"choice": [text]}, "stream": stream}
                if stream:
                    deltas = [part["choices"][0]["delta"] for part in server_test.frames(server.call("POST", CHAT, body)[2])]
                    self.assertEqual("".join(delta.get("content") or "" for delta in deltas), content or "", text)
                    continue
                message = server.post(CHAT, body)["choices"][0]["message"]
                self.assertEqual(message["content"], content, text)
                got = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls", [])]
                self.assertEqual(got, calls, text)

    def test_allowed_tools_and_functions_without_parameters(self):
        server = self.serve(QWEN)
        tools = TOOLS + [{"type": "function", "function": {"name": "now"}},
                         {"type": "function", "function": {"name": "here", "parameters": {"type": "object", "properties": {}}}}]

        def allowed(mode, *names):
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [
                {"type": "function", "function": {"name": name}} for name in names]}}

        for seed in range(6):
            for names in (("now",), ("now", "here")):
                message = self.chat(server, temperature=2, seed=seed, tools=tools, tool_choice=allowed("required", *names))[0]["message"]
                for call in message["tool_calls"]:
                    self.assertIn(call["function"]["name"], names)
                    self.assertEqual(json.loads(call["function"]["arguments"]), {})
            text = f'<tool_call>\n{{"name": "weather", "arguments": {ONE}}}\n</tool_call>'
        for names, count in ((("now",), 0), (("weather",), 1)):
            answer = self.chat(server, tools=tools, tool_choice=allowed("auto", *names), structured_outputs={"choice": [text]})[0]
            message = answer["message"]
            self.assertEqual(len(message.get("tool_calls", [])), count)
        for choice, param in ((allowed("auto", "unknown"), "tool_choice.allowed_tools.tools[0].function.name"),
                              (allowed("none", "now"), "tool_choice.allowed_tools.mode"),
                              ({"type": "allowed_tools"}, "tool_choice.allowed_tools"), ({"type": "custom"}, "tool_choice.type")):
            body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "tools": tools, "tool_choice": choice}
            self.assertEqual(server.post(CHAT, body, 400)["error"]["param"], param)

    def test_each_familys_form_is_read(self):
        self.check_turns(TURNS)

    def test_strict_calls_of_free_text_are_valid(self):
        """With tool_choice auto: the model is made to like the mark of a call, and what follows it is one."""
        strict = [{"type": "function", "function": {**one["function"], "strict": True}} for one in TOOLS]
        validators = {one["function"]["name"]: jsonschema.Draft202012Validator(one["function"]["parameters"]) for one in TOOLS}
        for mark in ("~", "<s>"):  # a text, and a special token
            server = self.serve(MARKED.replace("<function=", mark).replace("</function>", "!"))
            ids = server.post("/tokenize", {"model": MODEL, "prompt": mark, "add_special_tokens": False})["tokens"]
            found = {True: [0, 0], False: [0, 0]}  # answers with calls, and with text before or without them
            for tools, seeds in ((strict, range(24)), (TOOLS, range(8))):
                for seed in seeds:
                    answer = self.chat(server, temperature=1.5, seed=seed, tools=tools, logit_bias={str(ids[-1]): 5})[0]
                    message, counts = answer["message"], found[tools is strict]
                    counts[0] += "tool_calls" in message
                    counts[1] += bool(message["content"])
                    if tools is strict and answer["finish_reason"] != "length":
                        self.assertNotIn(mark, message["content"] or "")
                        for call in message.get("tool_calls", []):
                            validators[call["function"]["name"]].validate(json.loads(call["function"]["arguments"]))
            self.assertGreater(found[True][0], 10, (mark, found))
            self.assertGreater(found[True][1], 3, (mark, found))
            self.assertEqual(found[False][0], 0, "without strict the same model writes no call")

    def test_required_calls_are_valid(self):
        self.check_required_calls((QWEN, LLAMA, MISTRAL, MARKED, PLAIN))

    def test_calls_in_the_forms_of_a_folder(self):
        """Required calls, which the grammar makes in the form that was found, and the parser reads again."""
        if not TEMPLATES:
            self.skipTest("no --templates")
        good = 0
        for name in sorted(os.listdir(TEMPLATES)):
            if not name.endswith(".jinja"):
                continue
            with open(os.path.join(TEMPLATES, name)) as file:
                server = self.serve(file.read(), "--option", "cache_bytes=64M")
            body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 500, "tools": TOOLS, "temperature": 1,
                    "tool_choice": "required", "seed": 1}
            status, _, read = server.call("POST", CHAT, body)
            server.end()
            if status == 400:  # the template wants what this conversation lacks
                print(f"{name}: {json.loads(read)['error']['message'][:150]}")
                continue
            choice = json.loads(read)["choices"][0]
            if choice["finish_reason"] == "length":
                print(f"{name}: no end in 500 tokens")
                continue
            self.assertEqual(choice["finish_reason"], "tool_calls", (name, choice))
            for call in choice["message"]["tool_calls"]:
                parameters = [one["function"]["parameters"] for one in TOOLS if one["function"]["name"] == call["function"]["name"]]
                jsonschema.validate(json.loads(call["function"]["arguments"]), parameters[0])
            good += 1
        print(f"{good} templates' calls were made and read")
        self.assertGreater(good, 0)

    def test_no_calls_if_none_are_wanted(self):
        server = self.serve(QWEN)
        text = TURNS["qwen_blanks"][1]
        answer = self.chat(server, tools=TOOLS, tool_choice="none", structured_outputs={"choice": [text]})[0]
        self.assertEqual((answer["message"]["content"], answer["finish_reason"]), (text, "stop"))

    def test_a_conversation_with_a_tools_answer(self):
        server = self.serve(QWEN)
        messages = [{"role": "user", "content": "a"},
                    {"role": "assistant", "content": None, "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "B"}'}}]},
                    {"role": "tool", "tool_call_id": "call_1", "content": "warm"}]
        self.assertEqual(self.chat(server, messages=messages, tools=TOOLS, max_tokens=3, ignore_eos=True)[0]["finish_reason"], "length")


class OpenAi(WithServer):
    """OpenAI's own client."""

    def setUp(self):
        try:
            import openai
        except ImportError:
            self.skipTest("OpenAI's client is not there; bindings/python/get_python.sh fetches it")
        self.openai = openai

    def client(self, template):
        server = self.serve(template)
        client = self.openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        self.addCleanup(client.close)
        return client.chat.completions

    def test_parse_gives_its_class(self):
        import pydantic

        class Person(pydantic.BaseModel):
            name: typing.Annotated[str, pydantic.Field(max_length=6)]
            age: typing.Annotated[int, pydantic.Field(ge=0, le=130)]
            tags: typing.Annotated[list[typing.Literal["red", "green"]], pydantic.Field(max_length=3)]

        completions = self.client(PLAIN)
        for seed in range(8):
            answer = completions.parse(model=MODEL, messages=[{"role": "user", "content": "a"}], response_format=Person, temperature=1.5,
                                       seed=seed, max_completion_tokens=500)
            self.assertIsInstance(answer.choices[0].message.parsed, Person)

    def test_tools_streamed_or_not(self):
        completions = self.client(QWEN)
        ask = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "tools": TOOLS, "tool_choice": "required", "temperature": 1,
               "seed": 3, "max_completion_tokens": 500}
        whole = completions.create(**ask).choices[0]
        self.assertEqual(whole.finish_reason, "tool_calls")
        calls = [(call.function.name, call.function.arguments) for call in whole.message.tool_calls]
        with completions.stream(**ask) as stream:
            done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
            final = stream.get_final_completion().choices[0]
        self.assertEqual([(event.name, event.arguments) for event in done], calls)
        self.assertEqual([(call.function.name, call.function.arguments) for call in final.message.tool_calls], calls)


def main():
    """Runs the tests of the script that was called."""
    global LARGE, TEMPLATES, jsonschema
    LARGE = "--large" in sys.argv
    TEMPLATES = sys.argv[sys.argv.index("--templates") + 1] if "--templates" in sys.argv else ""
    server_test.PLAIT, server_test.FIXTURES = sys.argv[1:3]
    if "jsonschema" in server_test.missing_packages("jsonschema", "openai"):
        print("NOT RUN: there is no package jsonschema")
        sys.exit(0)
    import jsonschema
    unittest.main("__main__", argv=sys.argv[:1] + [word for word in sys.argv[3:] if word not in ("--large", "--templates", TEMPLATES)])


if __name__ == "__main__":
    main()
