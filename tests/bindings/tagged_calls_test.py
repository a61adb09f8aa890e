#!/usr/bin/env python3
"""plait serve: tool calls whose arguments have tags of their own, and strict ones in forms with no mark before a call.

usage: tagged_calls_test.py PLAIT FIXTURES [--large]

The templates are written for these tests, in the shapes that families of models have. As in structured_test.py, the model has random
weights, the grammar does the rest, and what a model would write is had by a list of choices.
"""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import structured_test  # noqa: E402
from structured_test import CHAT, LLAMA, MODEL, PLAIN, SHORT, TOOLS, tool  # noqa: E402

# Forms whose arguments have tags of their own: a line for each part, keys and values apart, attributes and one end for all calls; and one
# that tells what a value is.
TAGGED_TURN = """{% if tools %}<|tools|>{{ tools | tojson }}<|end|>{% endif %}{% for message in messages %}<|{{ message.role }}|>""" \
    """{{ message.content }}CALLS<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
EACH_CALL = "{% for call in message.tool_calls or [] %}"
EACH_ARGUMENT = "{% for key, value in call.function.arguments | items %}"
VALUE = "{{ value if value is string else value | tojson }}"
LINES = TAGGED_TURN.replace("CALLS", EACH_CALL + r"""{{ "\n<tool_call>\n<function=" ~ call.function.name ~ ">\n" }}""" + EACH_ARGUMENT +
                            r"""{{ "<parameter=" ~ key ~ ">\n" }}""" + VALUE + r"""{{ "\n</parameter>\n" }}{% endfor %}"""
                            r"""{{ "</function>\n</tool_call>" }}{% endfor %}""")
PAIRS = TAGGED_TURN.replace("CALLS", EACH_CALL + r"""{{ "<tool_call>" ~ call.function.name ~ "\n" }}""" + EACH_ARGUMENT +
                            r"""{{ "<arg_key>" ~ key ~ "</arg_key>\n<arg_value>" }}""" + VALUE + r"""{{ "</arg_value>\n" }}{% endfor %}"""
                            r"""{{ "</tool_call>" }}{% endfor %}""")
INVOKES = TAGGED_TURN.replace("CALLS", r"""{% if message.tool_calls %}{{ "<calls>\n" }}""" + EACH_CALL +
                              r"""{{ '<invoke name="' ~ call.function.name ~ '">\n' }}""" + EACH_ARGUMENT +
                              r"""{{ '<parameter name="' ~ key ~ '">' }}""" + VALUE + r"""{{ "</parameter>\n" }}{% endfor %}"""
                              r"""{{ "</invoke>\n" }}{% endfor %}{{ "</calls>" }}{% endif %}""")
TYPED = TAGGED_TURN.replace("CALLS", EACH_CALL + r"""{{ '<call to="' ~ call.function.name ~ '">' }}""" + EACH_ARGUMENT +
                            r"""{{ '<arg name="' ~ key ~ ('" text="yes">' if value is string else '" text="no">') }}""" + VALUE +
                            r"""{{ "</arg>" }}{% endfor %}{{ "</call>" }}{% endfor %}""")
TAGGED = {"lines": LINES, "pairs": PAIRS, "invokes": INVOKES, "typed": TYPED}
# What tags cannot tell, schemas do: a number in a text's place is a text.
CITY = 'B "5" <b>\\n,\n\u00e4'
TAGGED_CALLS = [("weather", {"city": CITY, "n": [1, {"a": "}"}]}), ("time", {"zone": "5", "n": 5})]
LISTED = '[1, {"a": "}"}]'
TAGGED_TEXTS = {
    "lines": f"\n<tool_call>\n<function=weather>\n<parameter=city>\n{CITY}\n</parameter>\n<parameter=n>\n{LISTED}\n</parameter>\n"
             "</function>\n</tool_call>\n<tool_call>\n<function=time>\n<parameter=zone>\n5\n</parameter>\n<parameter=n>\n5\n</parameter>\n"
             "</function>\n</tool_call>",
    "pairs": f"<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>{CITY}</arg_value>\n<arg_key>n</arg_key>\n<arg_value>{LISTED}"
             "</arg_value>\n</tool_call><tool_call>time\n<arg_key>zone</arg_key>\n<arg_value>5</arg_value>\n<arg_key>n</arg_key>\n"
             "<arg_value>5</arg_value>\n</tool_call>",
    "invokes": f'<calls>\n<invoke name="weather">\n<parameter name="city">{CITY}</parameter>\n<parameter name="n">{LISTED}'
               '</parameter>\n</invoke>\n<invoke name="time">\n<parameter name="zone">5</parameter>\n'
               '<parameter name="n">5</parameter>\n</invoke>\n</calls>',
    "typed": f'<call to="weather"><arg name="city" text="yes">{CITY}</arg><arg name="n" text="no">{LISTED}</arg></call>'
             '<call to="time"><arg name="zone" text="yes">5</arg><arg name="n" text="no">5</arg></call>',
}
TURNS = {
    **{name: (TAGGED[name], "Well." + text, None, "Well.", TAGGED_CALLS) for name, text in TAGGED_TEXTS.items()},
    "lines_blanks": (LINES, "<tool_call>\n<function=weather><parameter=city>Bonn</parameter></function></tool_call>", None, None,
                     [("weather", {"city": "Bonn"})]),
    "lines_unknown": (LINES, "<tool_call>\n<function=other>\n</function>\n</tool_call>", None,
                      "<tool_call>\n<function=other>\n</function>\n</tool_call>", []),
    "pairs_text": (PAIRS, "<b>Yes</b> & no.", None, "<b>Yes</b> & no.", []),
}

# What arguments may be, and what a text in its place must not be read as.
RICH = {
    "type": "object", "additionalProperties": False,
    "required": ["word", "maybe", "either", "few", "code", "day", "count", "tree", "flag", "list", "pair"],
    "properties": {
        "word": {"type": "string", "minLength": 1, "maxLength": 4},
        "maybe": {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "null"}]},
        "either": {"type": ["string", "integer"], "maxLength": 4, "minimum": 10, "maximum": 99},
        "few": {"enum": ["a", "5", 7, None, True]}, "code": {"type": "string", "pattern": "^[A-Z]{2}/[0-9]$"},
        "day": {"type": "string", "format": "date"}, "count": {"type": "integer", "minimum": -5, "maximum": 5},
        "tree": {"$ref": "#/$defs/tree"}, "flag": {"type": "boolean"}, "list": {"type": "array", "items": SHORT, "maxItems": 2},
        "pair": {"anyOf": [{"type": "string", "maxLength": 3},
                           {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"], "additionalProperties": False}]},
        "left": {"const": "out"}},
    "$defs": {"tree": {"type": "object", "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/tree"}]}},
                       "required": ["next"], "additionalProperties": False}}}
OTHERS = {"type": "object", "properties": {"name": SHORT}, "required": ["name"], "additionalProperties": {"type": "string", "maxLength": 3}}
NOTHING = {"type": "object", "properties": {}}
RICH_TOOLS = [{"type": "function", "function": {"name": name, "parameters": parameters}}
              for name, parameters in (("rich", RICH), ("others", OTHERS), ("nothing", NOTHING))]


class Tagged(structured_test.WithServer):
    def test_each_form_is_read(self):
        self.check_turns(TURNS)

    def test_required_calls_are_valid(self):
        self.check_required_calls(TAGGED.values())

    def test_tags_that_are_odd(self):
        """What a model may write that its template would not, and a call that is cut."""
        tools = [tool("f", a=SHORT, b={"type": "boolean"}, c={"anyOf": [{"type": "integer"}, {"type": "null"}]}, d={"type": "object"})]
        server = self.serve(LINES)

        def arguments(*pairs, end="</function>\n</tool_call>", **fields):
            text = "<tool_call>\n<function=f>\n" + "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in pairs) + end
            message = self.chat(server, tools=tools, structured_outputs={"choice": [text]}, temperature=0, **fields)[0]["message"]
            return message["tool_calls"][0]["function"]["arguments"], message["content"]

        for pairs, values in (((), {}), ((("a", "null"), ("b", "True"), ("c", "None")), {"a": "null", "b": True, "c": None}),
                              ((("a", ""), ("b", "maybe"), ("c", "5")), {"a": "", "b": "maybe", "c": 5}),
                              ((("a", "  x \n"), ("d", '{"x": [1, 2.5]}'), ("e", "free")),
                               {"a": "  x \n", "d": {"x": [1, 2.5]}, "e": "free"}),
                              ((("a", "</function>"), ("c", "1e999")), {"a": "</function>", "c": "1e999"})):
            got, content = arguments(*pairs)
            self.assertEqual((json.loads(got), content), (values, None))
        got, content = arguments(("a", "x"), end=" and so on")
        self.assertEqual((json.loads(got), content), ({"a": "x"}, "\n and so on"))
        cut, content = arguments(("a", "long " * 80), max_tokens=70)
        self.assertTrue(cut.startswith('{"a": "long long'), cut)
        self.assertFalse(cut.endswith('"}'))
        self.assertIsNone(content)

    def test_a_calls_text_is_what_the_template_writes(self):
        """A conversation's prompt has the calls of its turns as the model wrote them, so that the cache has them."""
        for name, template in TAGGED.items():
            server = self.serve(template)
            calls = [{"id": f"call_{index}", "type": "function", "function": {"name": called, "arguments": json.dumps(values)}}
                     for index, (called, values) in enumerate(TAGGED_CALLS)]
            messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "Well.", "tool_calls": calls},
                        {"role": "tool", "tool_call_id": "call_0", "content": "warm"}]
            ids = server.post("/tokenize", {"model": MODEL, "messages": messages, "tools": TOOLS})["tokens"]
            prompt = server.post("/detokenize", {"model": MODEL, "tokens": ids})["prompt"]
            self.assertIn("Well." + TAGGED_TEXTS[name], prompt)

    def test_strict_calls_are_valid_whatever_their_form(self):
        """With tool_choice auto, in forms with no mark before a call, and in tags: the model is made to like what begins one."""
        strict = [{"type": "function", "function": {**one["function"], "strict": True}} for one in TOOLS]
        validator = structured_test.jsonschema.Draft202012Validator
        validators = {one["function"]["name"]: validator(one["function"]["parameters"]) for one in TOOLS}
        marked = {name: template.replace("<tool_call>\\n<function=", "~").replace("<tool_call>", "~").replace('<call to="', "~")
                  .replace("<calls>\\n", "").replace('<invoke name="', "~") for name, template in TAGGED.items()}
        thinking = PLAIN.replace("{{ message.content }}", "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>"
                                 "{% endif %}{{ message.content }}")
        for name, template, mark in [("llama", LLAMA, "{"), ("plain", PLAIN, "{"), ("thinking", thinking, "{"),
                                     *((name, template, "~") for name, template in marked.items())]:
            server = self.serve(template)
            ids = server.post("/tokenize", {"model": MODEL, "prompt": mark, "add_special_tokens": False})["tokens"]
            calls = texts = 0
            for seed in range(16):
                bias = {} if name in ("llama", "plain", "thinking") and seed % 4 == 0 else {str(ids[-1]): 6}
                answer = self.chat(server, temperature=1.5, seed=seed, tools=strict, logit_bias=bias, max_tokens=200)[0]
                message = answer["message"]
                text = message["content"] or ""
                texts += bool(text)
                if mark == "{":
                    self.assertNotIn(text.lstrip()[:1], ("{", "["), (name, answer))
                calls += "tool_calls" in message
                if answer["finish_reason"] != "length":
                    for call in message.get("tool_calls", []):
                        validators[call["function"]["name"]].validate(json.loads(call["function"]["arguments"]))
            self.assertGreater(calls, 2, (name, calls, texts))
            if mark == "{":
                self.assertGreater(texts, 1, (name, calls, texts))

    def test_required_calls_in_tags_follow_their_schemas(self):
        """Texts stand as they are: what is read as something else must be allowed to be that."""
        jsonschema = structured_test.jsonschema
        validators = {one["function"]["name"]: jsonschema.Draft202012Validator(one["function"]["parameters"],
                                                                               format_checker=jsonschema.FormatChecker())
                      for one in RICH_TOOLS}
        for name, template in TAGGED.items():
            server = self.serve(template)
            types, called, finished = {}, set(), 0
            # What texts, numbers and objects begin with is liked in turn.
            ids = [server.post("/tokenize", {"model": MODEL, "prompt": one, "add_special_tokens": False})["tokens"][-1] for one in "47{"]
            likes = [{}, *({str(one): 12} for one in ids)]
            for seed in range(36 if structured_test.LARGE else 12):
                choice = {"type": "function", "function": {"name": ["rich", "rich", "others"][seed % 3]}} if seed else "required"
                answer = self.chat(server, temperature=1.5, seed=seed, tools=RICH_TOOLS, tool_choice=choice, parallel_tool_calls=False,
                                   max_tokens=700, logit_bias=likes[seed % 4])[0]
                if answer["finish_reason"] == "length":
                    continue
                finished += 1
                for call in answer["message"]["tool_calls"]:
                    values = json.loads(call["function"]["arguments"])
                    called.add(call["function"]["name"])
                    validators[call["function"]["name"]].validate(values)
                    for key, value in values.items():
                        types.setdefault(key, set()).add(type(value).__name__)
            self.assertGreater(finished, 5, name)
            self.assertLessEqual({"rich", "others"}, called)
            self.assertEqual(types["word"] | types["code"] | types["day"], {"str"}, types)
            self.assertLessEqual({"str", "int"}, types["either"] | types["few"], types)
            self.assertLessEqual({"str", "dict"}, types["pair"] | types["tree"], types)

    def test_what_tags_cannot_follow_is_told(self):
        server = self.serve(PAIRS)
        place = "tools[0].function.parameters"
        def of_a(schema):
            return {"type": "object", "properties": {"a": schema}}

        own = place + ".properties.a"
        for parameters, param in (({"type": "object", "patternProperties": {"^a$": {}}}, place + ".patternProperties"),
                                  (of_a({"type": "string", "format": "iri"}), own + ".format"),
                                  (of_a({"type": "strin"}), own + ".type"),
                                  (of_a({"anyOf": [{"type": "string"}], "minLength": 1}), own + ".minLength"),
                                  (of_a({"type": "string", "pattern": "a|^b$"}), own + ".pattern"),
                                  (of_a({"$ref": "#/$defs/none"}), own + ".$ref"),
                                  (of_a({"items": {"$ref": "#"}, "type": "array"}), own + ".items.$ref"),
                                  ({"type": "object", "properties": {" a": {}}}, place + ".properties. a"),
                                  ({"type": "array"}, place + ".type"), ({"properties": []}, place + ".properties")):
            body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 5, "tool_choice": "required",
                    "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}]}
            status, _, read = server.call("POST", CHAT, body)
            self.assertEqual((status, json.loads(read).get("error", {}).get("param")), (400, param), read)
            self.assertEqual(server.call("POST", CHAT, {**body, "tool_choice": "auto"})[0], 200)
        body["tools"][0]["function"]["parameters"] = of_a({"type": "string", "format": "color", "maxLength": 3})  # a remark
        status, _, read = server.call("POST", CHAT, body)
        self.assertEqual(status, 200, read)


if __name__ == "__main__":
    structured_test.main()
