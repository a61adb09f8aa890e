// Templates with the constructs of well-known model families, and the text that Jinja2 3.1 makes of them with the
// settings of transformers (trim_blocks, lstrip_blocks, loop controls, its tojson and its generation blocks).
#include "tests/unit/text/chat_cases.h"

namespace plait::text_test {
namespace {

// Llama: a system header with a date, tools indented, one call a turn.
constexpr const char* headers = R"~({{- bos_token }}
{%- if day is not defined %}
    {%- set day = "a Monday" %}
{%- endif %}
{#- The system message goes first. #}
{%- set opening = '' %}
{%- if messages[0].role == 'system' %}
    {%- set opening = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- endif %}
{{- '<|h|>system<|/h|>\n\nIt is ' + day + '.\n' + opening + '<|eot|>' }}
{%- for tool in tools or [] %}
    {{- tool | tojson(indent=4) }}
{%- endfor %}
{%- for m in messages %}
    {{- '<|h|>' + m.role + '<|/h|>\n\n' }}
    {%- if 'tool_calls' in m %}
        {%- if not m.tool_calls | length == 1 %}
            {{- raise_exception('one call a turn, not ' ~ m.tool_calls | length) }}
        {%- endif %}
        {%- set call = m.tool_calls[0].function %}
        {{- '{"call": "' + call.name + '", "with": ' }}
        {{- call.arguments | tojson }}
        {{- '}' }}
    {%- elif m.role == 'tool' and (m.content is mapping or m.content is iterable) %}
        {{- m.content | tojson }}
    {%- else %}
        {{- m['content'] | trim }}
    {%- endif %}
    {{- '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|h|>assistant<|/h|>\n\n' }}
{%- endif %}
)~";

// Gemma: alternation, content in parts, blanks trimmed on both sides of every tag.
constexpr const char* turns = R"~({{ bos_token }}
{%- set first = '' -%}
{%- set turns = messages -%}
{%- if messages and messages[0].role == 'system' -%}
    {%- set first = messages[0].content + '

' -%}
    {%- set turns = messages[1:] -%}
{%- endif -%}
{%- for turn in turns -%}
    {%- if (turn.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("turns must alternate") }}
    {%- endif -%}
    {%- set name = 'model' if turn.role == 'assistant' else turn.role -%}
    {{ '<turn>' + name + '
' + (first if loop.first else '') }}
    {%- if turn.content is string -%}
        {{ turn.content | trim }}
    {%- elif turn.content is iterable -%}
        {%- for part in turn.content -%}
            {{ '<image>' if part.type == 'image' else part.text | trim }}
        {%- endfor -%}
    {%- endif -%}
    {{ '</turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<turn>model
'}}
{%- endif -%}
)~";

// Qwen: a search from the end, thoughts cut out of earlier answers, results of tools grouped.
constexpr const char* thinking = R"~({%- set state = namespace(looking=true, last_question=messages|length - 1) %}
{%- for m in messages[::-1] %}
    {%- set at = messages|length - 1 - loop.index0 %}
    {%- if state.looking and m.role == 'user' and not (m.content.startswith('<result>') and m.content.endswith('</result>')) %}
        {%- set state.looking = false %}
        {%- set state.last_question = at %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set text = m.content if m.content is string else '' %}
    {%- if m.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im|>user' }}{% endif %}
        {{- '\n<result>' + text + '</result>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|end|>\n' }}{% endif %}
        {%- continue %}
    {%- endif %}
    {%- set thought = '' %}
    {%- if m.thought is string %}
        {%- set thought = m.thought %}
    {%- elif '</think>' in text %}
        {%- set thought = text.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
        {%- set text = text.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {{- '<|im|>' ~ m.role ~ '\n' }}
    {%- if loop.index0 > state.last_question and thought %}
        {{- '<think>\n' + thought.strip('\n') + '\n</think>\n\n' }}
    {%- endif %}
    {{- text }}
    {%- for call in m.tool_calls %}
        {%- if call.function %}{% set call = call.function %}{% endif %}
        {{- '\n<call>{"name": "' + call.name + '", "arguments": ' }}
        {{- call.arguments if call.arguments is string else call.arguments | tojson }}
        {{- '}</call>' }}
    {%- endfor %}
    {{- '<|end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}
{%- endif %})~";

// Mistral: tools beside the last question, ids of calls checked.
constexpr const char* brackets = R"~({%- set ns = namespace() %}
{%- set ns.turn = 0 %}
{%- set rest = messages | rejectattr('role', 'equalto', 'system') | list %}
{%- set questions = rest | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for m in rest %}
    {%- if m.role == "user" %}
        {%- if ns.turn % 2 != 0 %}{{ raise_exception("roles must alternate") }}{% endif %}
        {%- set ns.turn = ns.turn + 1 %}
        {%- if tools is not none and m == questions[-1] %}
            {{- "[TOOLS] [" }}
            {%- for tool in tools %}
                {{- "{" }}
                {%- for key, value in tool.function.items() if key != "return" %}
                    {%- if value is string %}{{ '"' + key + '": "' + value + '"' }}{% else %}{{ '"' + key + '": ' + value|tojson }}{% endif %}
                    {%- if not loop.last %}{{ ", " }}{% endif %}
                {%- endfor %}
                {{- "}" + ("" if loop.last else ", ") }}
            {%- endfor %}
            {{- "][/TOOLS]" }}
        {%- endif %}
        {{- "[INST] " + m["content"] + "[/INST]" }}
    {%- elif m.tool_calls is defined and m.tool_calls is not none %}
        {{- "[CALLS] [" }}
        {%- for call in m.tool_calls %}
            {%- set out = call.function|tojson %}
            {{- out[:-1] }}
            {%- if not call.id is defined or call.id|length != 4 %}
                {{- raise_exception("the id of a call has 4 letters") }}
            {%- endif %}
            {{- ', "id": "' + call.id + '"}' + ("]" + eos_token if loop.last else ", ") }}
        {%- endfor %}
    {%- elif m.role == "tool" %}
        {{- '[RESULT] {"content": ' + m.content|string + "}[/RESULT]" }}
    {%- elif m.role == "assistant" %}
        {%- set ns.turn = ns.turn + 1 %}
        {{- " " + m.content|trim + eos_token }}
    {%- else %}
        {{- raise_exception("unknown role " + m.role) }}
    {%- endif %}
{%- endfor %}
)~";

// Command R, gpt-oss: schemas through recursive macros.
constexpr const char* macros = R"~({%- macro type_of(schema, depth=0) -%}
    {%- if schema.type == "array" -%}
        {{ type_of(schema["items"], depth + 1) }}[]
    {%- elif schema.type == "object" -%}
        {
        {%- for name, part in schema.properties|dictsort %}
{{ "  " * (depth + 1) }}{{ name }}{{ "" if name in schema.required|default([]) else "?" }}: {{ type_of(part, depth + 1) }},
        {%- endfor %}
{{ "  " * depth }}}
    {%- elif schema.enum is defined -%}
        {{ schema.enum | map("tojson") | join(" | ") }}
    {%- else -%}
        {{ schema.type | default("any") }}
    {%- endif -%}
{%- endmacro -%}
{%- macro turn(role) -%}
    <{{ role }}>{{ caller() }}</{{ role }}>
{%- endmacro -%}
{%- for tool in tools or [] %}
function {{ tool.function.name }}({{ type_of(schema=tool.function.parameters) }})
{% endfor %}
{%- for message in messages %}
{% call turn(message.role) %}{{ message.content }}{% endcall %}

{%- endfor %})~";

constexpr const char* generation = R"~({% for message in messages %}
{%- if message.role == 'assistant' %}
  {% generation %}
{{ message.content + eos_token }}
  {%- endgeneration -%}
{% else %}
{{ '[' ~ message.role ~ ']' }} {{ message.content }}
{% endif %}
{% endfor %}
)~";

constexpr const char* tools = R"~([{"type": "function", "function": {"name": "weather", "description": "What's the weather in \u00e9?", "parameters": {"type": "object", "properties": {"where": {"type": "string"}, "days": {"type": "array", "items": {"enum": ["mon", "tue"]}}, "deep": {"type": "object", "properties": {"x": {"type": "number"}}}}, "required": ["where"]}, "return": {"type": "string"}}}])~";
constexpr const char* talk = R"~([{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "Hi <there> & \"you\"\n"}, {"role": "assistant", "content": "Hello!  "}, {"role": "user", "content": "\u4f60\u597d \ud83d\ude00"}])~";
constexpr const char* calls_with_object = R"~([{"role": "user", "content": "Weather?"}, {"role": "assistant", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {"where": "K\u00f6ln", "n": 1.0, "ok": true, "none": null}}}]}, {"role": "tool", "content": {"sky": "sunny"}, "tool_call_id": "abcdefghi"}])~";
constexpr const char* calls = R"~([{"role": "user", "content": "Weather?"}, {"role": "assistant", "tool_calls": [{"id": "abcd", "type": "function", "function": {"name": "weather", "arguments": {"where": "K\u00f6ln", "n": 1.0, "ok": true, "none": null}}}]}, {"role": "tool", "content": "7", "tool_call_id": "abcd"}])~";
constexpr const char* thoughts = R"~([{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>\nsecret\n</think>\n\nanswer"}, {"role": "user", "content": "again"}, {"role": "assistant", "content": "<think>\nmore\n</think>\n\nlast", "tool_calls": [{"name": "f", "arguments": "{\"a\": 1}"}, {"function": {"name": "g", "arguments": {"b": [1, 2.5]}}}]}, {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}])~";
constexpr const char* parts = R"~([{"role": "system", "content": "Sys"}, {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " What? "}]}, {"role": "assistant", "content": "A cat"}])~";
constexpr const char* values = R"~({"n": null, "t": true, "f": false, "i": 3, "big": 123456789012345678, "x": 0.1, "one": 1.0, "e": 1e20, "tiny": 1.5e-7, "s": "a\u00e9\n\"<'", "list": [3, 1, 2], "d": {"b": 1, "a": [null, {}], "\u00e9": ["\u2192"]}, "u": "  pad  "})~";
constexpr const char* no_messages = "[]";

}  // namespace

std::vector<ChatCase> chat_cases() {
  return {
      {"headers_talk",
       headers,
       talk, "", "", true,
       R"~(<s><|h|>system<|/h|>

It is a Monday.
Be brief.<|eot|><|h|>user<|/h|>

Hi <there> & "you"<|eot|><|h|>assistant<|/h|>

Hello!<|eot|><|h|>user<|/h|>

你好 😀<|eot|><|h|>assistant<|/h|>

)~"},
      {"headers_tools",
       headers,
       calls_with_object, tools, R"~({"day": "the 1st"})~", true,
       R"~(<s><|h|>system<|/h|>

It is the 1st.
<|eot|>{
    "type": "function",
    "function": {
        "name": "weather",
        "description": "What's the weather in é?",
        "parameters": {
            "type": "object",
            "properties": {
                "where": {
                    "type": "string"
                },
                "days": {
                    "type": "array",
                    "items": {
                        "enum": [
                            "mon",
                            "tue"
                        ]
                    }
                },
                "deep": {
                    "type": "object",
                    "properties": {
                        "x": {
                            "type": "number"
                        }
                    }
                }
            },
            "required": [
                "where"
            ]
        },
        "return": {
            "type": "string"
        }
    }
}<|h|>user<|/h|>

Weather?<|eot|><|h|>assistant<|/h|>

{"call": "weather", "with": {"where": "Köln", "n": 1.0, "ok": true, "none": null}}<|eot|><|h|>tool<|/h|>

{"sky": "sunny"}<|eot|><|h|>assistant<|/h|>

)~"},
      {"turns_talk",
       turns,
       talk, "", "", true,
       R"~(<s><turn>user
 Be brief. 

Hi <there> & "you"</turn>
<turn>model
Hello!</turn>
<turn>user
你好 😀</turn>
<turn>model
)~"},
      {"turns_parts",
       turns,
       parts, "", "", false,
       R"~(<s><turn>user
Sys

<image>What?</turn>
<turn>model
A cat</turn>
)~"},
      {"thinking_talk",
       thinking,
       talk, "", "", true,
       R"~(<|im|>system
 Be brief. <|end|>
<|im|>user
Hi <there> & "you"
<|end|>
<|im|>assistant
Hello!  <|end|>
<|im|>user
你好 😀<|end|>
<|im|>assistant
)~"},
      {"thinking_off",
       thinking,
       talk, tools, R"~({"enable_thinking": false})~", true,
       R"~(<|im|>system
 Be brief. <|end|>
<|im|>user
Hi <there> & "you"
<|end|>
<|im|>assistant
Hello!  <|end|>
<|im|>user
你好 😀<|end|>
<|im|>assistant
<think>

</think>

)~"},
      {"thinking_calls",
       thinking,
       thoughts, "", "", true,
       R"~(<|im|>user
q<|end|>
<|im|>assistant
answer<|end|>
<|im|>user
again<|end|>
<|im|>assistant
<think>
more
</think>

last
<call>{"name": "f", "arguments": {"a": 1}}</call>
<call>{"name": "g", "arguments": {"b": [1, 2.5]}}</call><|end|>
<|im|>user
<result>1</result>
<result>2</result><|end|>
<|im|>assistant
)~"},
      {"brackets_talk",
       brackets,
       talk, "", "", false,
       R"~(<s>[INST] Hi <there> & "you"
[/INST] Hello!</s>[INST] 你好 😀[/INST])~"},
      {"brackets_tools",
       brackets,
       calls, tools, "", false,
       R"~(<s>[TOOLS] [{"name": "weather", "description": "What's the weather in é?", "parameters": {"type": "object", "properties": {"where": {"type": "string"}, "days": {"type": "array", "items": {"enum": ["mon", "tue"]}}, "deep": {"type": "object", "properties": {"x": {"type": "number"}}}}, "required": ["where"]}}][/TOOLS][INST] Weather?[/INST][CALLS] [{"name": "weather", "arguments": {"where": "Köln", "n": 1.0, "ok": true, "none": null}, "id": "abcd"}]</s>[RESULT] {"content": 7}[/RESULT])~"},
      {"macros",
       macros,
       talk, tools, "", false,
       R"~(function weather({  days?: "mon" | "tue"[],  deep?: {    x?: number,  },  where: string,})
<system> Be brief. </system><user>Hi <there> & "you"
</user><assistant>Hello!  </assistant><user>你好 😀</user>)~"},
      {"generation",
       generation,
       talk, "", "", false,
       R"~([system]  Be brief. 
[user] Hi <there> & "you"

Hello!  </s>[user] 你好 😀
)~"},
      {"values",
       R"~({{ n }} {{ t }} {{ f }} {{ i }} {{ big }} {{ x }} {{ one }} {{ missing }}|{{ list }} {{ d }} {{ s }})~",
       no_messages, "", values, false,
       R"~(None True False 3 123456789012345678 0.1 1.0 |[3, 1, 2] {'b': 1, 'a': [None, {}], 'é': ['→']} aé
"<')~"},
      {"tojson",
       R"~({{ d|tojson }} {{ s|tojson }} {{ n|tojson }} {{ t|tojson }} {{ [x, one, e, tiny, big]|tojson }} {{ s|tojson(ensure_ascii=true) }})~",
       no_messages, "", values, false,
       R"~({"b": 1, "a": [null, {}], "é": ["→"]} "aé\n\"<'" null true [0.1, 1.0, 1e+20, 1.5e-07, 123456789012345678] "a\u00e9\n\"<'")~"},
      {"tojson_indent",
       R"~({{ d|tojson(indent=2) }}
{{ []|tojson(indent=2) }}{{ {}|tojson(indent=2) }} {{ d|tojson(indent=none) }})~",
       no_messages, "", values, false,
       R"~({
  "b": 1,
  "a": [
    null,
    {}
  ],
  "é": [
    "→"
  ]
}
[]{} {"b": 1, "a": [null, {}], "é": ["→"]})~"},
      {"tojson_style",
       R"~({{ d|tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': 2, 3: 4}|tojson }} {{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }} {{ '\u00e9 \x7f \t'|tojson }})~",
       no_messages, "", values, false,
       R"~({"b":1,"a":[null,{}],"é":["→"]} {"b": 1, "a": 2, "3": 4} {"a": 2, "b": 1} "é  \t")~"},
      {"strings",
       R"~({{ u.strip() }}|{{ u.lstrip() }}|{{ u.rstrip() }}|{{ 'a,b,,c'.split(',') }}|{{ 'a b  c'.split() }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'xxaxx'.strip('x') }}|{{ 'AbC'.lower() }}{{ 'abc'.upper() }}|{{ 'abc'.replace('b', '-') }}|{{ 'one two'.title() }}|{{ 'ab'.capitalize() }}|{{ 'hello'.find('l') }}|{{ '-'.join(['a','b']) }}|{{ 'ab'.startswith('a') }}{{ 'ab'.endswith(('x','b')) }})~",
       no_messages, "", values, false,
       R"~(pad|pad  |  pad|['a', 'b', '', 'c']|['a', 'b', 'c']|['a', 'b,c']|a|abcABC|a-c|One Two|Ab|2|a-b|TrueTrue)~"},
      {"more_strings",
       R"~({{ 'prefix-x'.removeprefix('prefix-') }}|{{ 'x.py'.removesuffix('.py') }}|{{ 'a.b.c'.rsplit('.', 1) }}|{{ 'a=b=c'.partition('=')[2] }}|{{ 'a=b=c'.rpartition('=')[0] }}|{{ 'a b'.splitlines() }}|{{ '12'.isdigit() }}|{{ 'banana'.count('an') }}|{{ '{}-{}'.format('a', 1) }})~",
       no_messages, "", values, false,
       R"~(x|x|['a.b', 'c']|b=c|a=b|['a b']|True|2|a-1)~"},
      {"slices",
       R"~({{ list[1:] }}{{ list[:-1] }}{{ list[::-1] }}{{ list[-1] }}|{{ 'abcdef'[1:3] }}{{ 'abcdef'[-2:] }}{{ 'abc'[0] }}|{{ list[1:]|length }}|{{ (list + [9])[-1] }})~",
       no_messages, "", values, false,
       R"~([1, 2][3, 1][2, 1, 3]2|bcefa|2|9)~"},
      {"tests",
       R"~({{ 'a' is string }} {{ 'a' is iterable }} {{ 'a' is sequence }} {{ list is sequence }} {{ list[1:] is sequence }} {{ d is mapping }} {{ d is iterable }} {{ i is iterable }} {{ n is none }} {{ missing is defined }} {{ i is number }} {{ t is boolean }} {{ t is true }} {{ i is odd }} {{ n is sequence }} {{ 3 is divisibleby(3) }})~",
       no_messages, "", values, false,
       R"~(True True True True True True True False True False True True True True False True)~"},
      {"filters",
       R"~({{ list|sort }} {{ list|first }} {{ list|last }} {{ list|join(', ') }} {{ list|map('string')|join }} {{ d|items|list|length }} {{ d|length }} {{ missing|default('x') }} {{ ''|default('y', true) }} {{ list|sum }} {{ [1,1,2]|unique|list }} {{ 'a b'|replace(' ', '_') }} {{ 'a'|upper }} {{ '3'|int + 1 }} {{ list|reverse|list }} {{ list|min }}{{ list|max }} {{ 'abc'|length }} {{ [[1,'a']]|map(attribute=1)|first }} {{ list|select('gt', 1)|list }} {{ 2.567|round(1) }})~",
       no_messages, "", values, false,
       R"~([1, 2, 3] 3 2 3, 1, 2 312 3 3 x y 6 [1, 2] a_b A 4 [2, 1, 3] 13 3 a [3, 2] 2.6)~"},
      {"dicts",
       R"~({% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{{ d.get('b') }}{{ d.get('zz') }}{{ d.get('zz', 7) }}{{ d.keys()|list }}{{ d.values()|list|length }}{{ 'b' in d }}{{ d['b'] }}{{ d.b }}{% for k in d %}{{ k }}{% endfor %}{% for k, v in d|dictsort %}{{ k }}{% endfor %})~",
       no_messages, "", values, false,
       R"~(b=1;a=[None, {}];é=['→'];1None7['b', 'a', 'é']3True11baéabé)~"},
      {"loops",
       R"~({% for v in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }} {% endfor %}{% for v in [] %}x{% else %}none{% endfor %}{% for v in list if v > 1 %}{{ v }}{% endfor %}{% for v in range(5) %}{% if v == 1 %}{% continue %}{% endif %}{% if v == 3 %}{% break %}{% endif %}{{ v }}{% endfor %}{% for v in list %}{{ loop.previtem|default('-') }}{{ loop.nextitem|default('-') }}{% endfor %}{% for c in list %}{{ loop.cycle('a', 'b') }}{% endfor %})~",
       no_messages, "", values, false,
       R"~(10TrueFalse33 21FalseFalse32 32FalseTrue31 none3202-1321-aba)~"},
      {"blanks",
       R"~(  {% if true %}
  a
  {% endif %}

  {%- if true +%}
 b {% endif -%}

 c {# note #}
{#- x -#}
  d

)~",
       no_messages, "", values, false,
       R"~(  a

 b c d
)~"},
      {"sets",
       R"~({% set a, b = 1, 2 %}{{ a + b }}{% set text %}block {{ a }}{% endset %}{{ text }}{% set ns = namespace(n=0, l=[]) %}{% for v in list %}{% set ns.n = ns.n + v %}{% set ns.l = ns.l + [v] %}{% set a = 9 %}{% endfor %}{{ ns.n }}{{ ns.l }}{{ a }})~",
       no_messages, "", values, false,
       R"~(3block 16[3, 1, 2]1)~"},
      {"arithmetic",
       R"~({{ 7 // 2 }} {{ 7 / 2 }} {{ 7 % 3 }} {{ 2 ** 3 }} {{ -i }} {{ 1 ~ 'a' ~ 2.0 }} {{ 'a' * 3 }} {{ 'x' if f else 'y' }} {{ not f and t or f }} {{ 1 < 2 < 3 }} {{ 'b' not in 'abc' }} {{ 1 == 1.0 }} {{ 'a' 'b' }})~",
       no_messages, "", values, false,
       R"~(3 3.5 1 8 -3 1a2.0 aaa y True True False True ab)~"},
      {"raw_and_escapes",
       R"~({% raw %}{{ x }} {% if %}{% endraw %}{{ '\n' }}{{ "\"q\"" }}{{ '\'' }}{{ '{{' }}&<>)~",
       no_messages, "", values, false,
       R"~({{ x }} {% if %}
"q"'{{&<>)~"},
  };
}

}  // namespace plait::text_test
