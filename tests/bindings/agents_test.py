#!/usr/bin/env python3
"""plait serve: the wires of agents, /v1/responses and /v1/messages, by OpenAI's and Anthropic's own clients.

usage: agents_test.py PLAIT FIXTURES

All wires are ways to one engine: what each answers is compared with /v1/chat/completions, whole and streamed. The model has random
weights; what one would write is had by the list of choices, as in structured_test.py. The clients are of this Python, or of the
environment of bindings/python/get_python.sh; without them it prints NOT RUN.
"""
import json
import os
import re
import signal
import socket
import sys
import typing
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server_test  # noqa: E402
import structured_test  # noqa: E402
from limits import HANG_S  # noqa: E402
from structured_test import MODEL, PLAIN, QWEN, TOOLS, TURNS  # noqa: E402

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
FLAT_TOOLS = [{"type": "function", "strict": True, **one["function"]} for one in TOOLS]
CUSTOM_TOOLS = [{"name": one["function"]["name"], "description": "a tool", "input_schema": one["function"]["parameters"]} for one in TOOLS]
CITY = '{"city": "B"}'


def events(read):
    """Objects of an event stream, whose lines of events have to be their types."""
    out = []
    for frame in read.decode().split("\n\n")[:-1]:
        name, data = frame.split("\n")
        out.append(json.loads(data.removeprefix("data: ")))
        assert name == "event: " + out[-1]["type"], frame
    return out


class WithClient(structured_test.WithServer):
    def cut_stream(self, path, body):
        """What a stream ends with that the server's end cuts."""
        server = self.serve(PLAIN, "--drain", "0")
        data = json.dumps({"model": MODEL, "stream": True, "ignore_eos": True, **body}).encode()
        with socket.create_connection(("127.0.0.1", server.port), timeout=HANG_S) as raw:
            raw.sendall(b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
            got = raw.recv(20)
            self.assertTrue(got.startswith(b"HTTP/1.1 200"), got)
            server.process.send_signal(signal.SIGTERM)
            while more := raw.recv(65536):
                got += more
        return got.decode(errors="replace")  # chunks may begin within a character


class Responses(WithClient):
    def setUp(self):
        import openai
        self.openai = openai

    def client(self, server):
        out = self.openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        self.addCleanup(out.close)
        return out.responses

    def test_answers_are_those_of_chat(self):
        """Also of a conversation with instructions, calls, their results and thoughts: the same prompt, so the same text."""
        server = self.serve(QWEN)
        client = self.client(server)
        call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": CITY}}
        messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "the sea"},
                    {"role": "assistant", "content": "So.", "reasoning_content": "Hm.", "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "call_1", "content": "warm"}]
        items = [{"role": "user", "content": [{"type": "input_text", "text": "the "}, {"type": "input_text", "text": "sea"}]},
                 {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
                 {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So.", "annotations": []}]},
                 {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": CITY},
                 {"type": "function_call_output", "call_id": "call_1", "output": "warm"}]
        for given, chat in (({"input": "the sea"}, messages[1:2]), ({"input": items, "instructions": "Be short."}, messages)):
            ask = {"model": MODEL, "temperature": 0, "max_output_tokens": 12, "store": False, **given}
            body = {"model": MODEL, "temperature": 0, "max_tokens": 12, "messages": chat}
            expected = server.post(CHAT, body)
            whole = client.create(**ask)
            self.assertEqual(whole.output_text, expected["choices"][0]["message"]["content"])
            self.assertEqual((whole.usage.input_tokens, whole.usage.output_tokens, whole.usage.total_tokens),
                             tuple(expected["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")))
            self.assertEqual((whole.status, whole.incomplete_details.reason), ("incomplete", "max_output_tokens"))
            self.assertEqual(whole.output[0].status, "incomplete")
            type(whole).model_validate(whole.model_dump(), strict=True)
            streamed = list(client.create(**ask, stream=True))
            self.assertEqual("".join(one.delta for one in streamed if one.type == "response.output_text.delta"), whole.output_text)
            self.assertEqual(streamed[-1].type, "response.incomplete")
            self.assertEqual(streamed[-1].response.output_text, whole.output_text)
            # The second time the prompt is found in the cache.
            self.assertGreater(streamed[-1].response.usage.input_tokens_details.cached_tokens, 0)
            self.assertEqual(streamed[-1].response.usage.input_tokens, whole.usage.input_tokens)

    def test_arguments_go_back_in_their_order(self):
        """A conversation with a call is found in the cache up to the end of the call if the call is the same text, not if it is sorted."""
        server = self.serve(QWEN)

        def cached(arguments):
            return server.post(RESPONSES, {"model": MODEL, "max_output_tokens": 1, "input": [
                {"role": "user", "content": "a"}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments},
                {"type": "function_call_output", "call_id": "c", "output": "x"}]})["usage"]["input_tokens_details"]["cached_tokens"]

        long = "the river and the sea " * 20
        cached(json.dumps({"z": long, "a": 1}))
        self.assertLess(cached(json.dumps({"a": 1, "z": long})), 160)
        self.assertGreater(cached(json.dumps({"z": long, "a": 1})), 160)

    def test_events_in_order(self):
        """Of thoughts, text and two calls: each item begins, has its parts and ends before the next, and their texts are the answer's."""
        server = self.serve(QWEN)
        text = "<think>\nThe city.\n</think>\n\n" + TURNS["qwen"][1]
        body = {"model": MODEL, "input": "a", "tools": FLAT_TOOLS, "structured_outputs": {"choice": [text]}, "temperature": 0,
                "max_output_tokens": 500}
        whole = server.post(RESPONSES, body)
        kinds = [one["type"] for one in whole["output"]]
        self.assertEqual(kinds, ["reasoning", "message", "function_call", "function_call"])
        self.assertEqual(whole["output"][0]["content"][0]["text"], "The city.")
        self.assertEqual(whole["output"][1]["content"][0]["text"], "Let me see.")
        calls = [(one["name"], json.loads(one["arguments"])) for one in whole["output"][2:]]
        self.assertEqual(calls, structured_test.CALLS)
        self.assertEqual(whole["status"], "completed")
        self.assertGreater(whole["usage"]["output_tokens_details"]["reasoning_tokens"], 0)
        self.assertLess(whole["usage"]["output_tokens_details"]["reasoning_tokens"], whole["usage"]["output_tokens"] // 2)
        got = events(server.call("POST", RESPONSES, {**body, "stream": True})[2])
        self.assertEqual([one["sequence_number"] for one in got], list(range(len(got))))
        self.assertEqual([one["type"] for one in got[:2]], ["response.created", "response.in_progress"])
        self.assertEqual({one["response"]["id"] for one in got if "response" in one}, {got[0]["response"]["id"]})
        expected, at = [], 2
        for index, item in enumerate(whole["output"]):
            stem = {"reasoning": "reasoning_text", "message": "output_text", "function_call": "function_call_arguments"}[item["type"]]
            own = [one for one in got if one.get("output_index") == index]
            order = [one["type"].removeprefix("response.") for one in own]
            deltas = order.count(stem + ".delta")
            self.assertGreater(deltas, 1)
            parts = item["type"] != "function_call"
            self.assertEqual(order, ["output_item.added"] + ["content_part.added"] * parts + [stem + ".delta"] * deltas + [stem + ".done"]
                             + ["content_part.done"] * parts + ["output_item.done"])
            self.assertEqual(got[at:at + len(own)], own, "items follow each other")
            at += len(own)
            done = own[-1]["item"]
            written = "".join(one["delta"] for one in own if one["type"].endswith(".delta"))
            self.assertEqual(written, done["content"][0]["text"] if parts else done["arguments"])
            self.assertEqual({one.get("item_id", done["id"]) for one in own}, {done["id"]})
            expected.append(done)
        self.assertEqual([one["type"] for one in got[at:]], ["response.completed"])
        self.assertEqual(got[-1]["response"]["output"], expected)

        def bare(items):
            return [{name: value for name, value in one.items() if name not in ("id", "call_id")} for one in items]

        self.assertEqual(bare(expected), bare(whole["output"]))

    def test_tools_by_the_client(self):
        server = self.serve(QWEN)
        client = self.client(server)
        ask = {"model": MODEL, "input": "a", "tools": FLAT_TOOLS, "tool_choice": "required", "temperature": 1, "max_output_tokens": 500,
               "extra_body": {"seed": 3}}
        whole = client.create(**ask)
        self.assertEqual({one.type for one in whole.output}, {"function_call"})
        with client.stream(**ask) as stream:
            done = [event for event in stream if event.type == "response.function_call_arguments.done"]
            final = stream.get_final_response()
        calls = [(one.name, one.arguments) for one in whole.output]
        self.assertEqual([(one.name, one.arguments) for one in done], calls)
        self.assertEqual([(one.name, one.arguments) for one in final.output], calls)
        # What it answered goes back as it came.
        items = [{"role": "user", "content": "a"}, *(one.model_dump() for one in whole.output),
                 *({"type": "function_call_output", "call_id": one.call_id, "output": "5"} for one in whole.output)]
        self.assertGreater(client.create(**{**ask, "input": items}).usage.input_tokens, whole.usage.input_tokens)
        named = client.create(**{**ask, "tool_choice": {"type": "function", "name": "time"}, "parallel_tool_calls": False})
        self.assertEqual([one.name for one in named.output], ["time"])

    def test_parse_gives_its_class(self):
        import pydantic

        class Person(pydantic.BaseModel):
            name: typing.Annotated[str, pydantic.Field(max_length=6)]
            age: typing.Annotated[int, pydantic.Field(ge=0, le=130)]

        client = self.client(self.serve(PLAIN))
        for seed in range(4):
            answer = client.parse(model=MODEL, input="a", text_format=Person, temperature=1.5, max_output_tokens=500,
                                  extra_body={"seed": seed})
            self.assertIsInstance(answer.output_parsed, Person)

    def test_wrong_calls(self):
        server = self.serve(QWEN)
        base = {"model": MODEL, "input": "a", "max_output_tokens": 2}
        image = {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}
        for fields, param in (({"store": True}, "store"), ({"store": "yes"}, "store"), ({"input": None}, "input"),
                              ({"previous_response_id": "resp_1"}, "previous_response_id"),
                              ({"conversation": "conv_1"}, "conversation"), ({"background": True}, "background"),
                              ({"input": []}, "input"), ({"input": [5]}, "input[0]"), ({"input": [image]}, "input[0].content[0].type"),
                              ({"input": [{"role": "king", "content": "a"}]}, "input[0].role"),
                              ({"input": [{"role": "user"}]}, "input[0].content"),
                              ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
                              ({"input": [{"type": "function_call", "call_id": "a", "name": "b"}]}, "input[0].arguments"),
                              ({"instructions": 5}, "instructions"), ({"max_output_tokens": -1}, "max_output_tokens"),
                              ({"tools": [{"type": "web_search"}]}, "tools[0].type"), ({"tools": [{"type": "function"}]}, "tools[0].name"),
                              ({"tools": FLAT_TOOLS, "tool_choice": {"type": "function", "name": "x"}}, "tool_choice.name"),
                              ({"tools": FLAT_TOOLS, "tool_choice": {"type": "file_search"}}, "tool_choice.type"),
                              ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
                              ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
                              ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"not": {}}}}}, "text.format.schema"),
                              ({"reasoning": {"effort": 5}}, "reasoning.effort"), ({"truncation": "auto"}, "truncation"),
                              ({"include": ["message.output_text.logprobs"]}, "include[0]"), ({"temperature": "hot"}, "temperature")):
            error = server.post(RESPONSES, {**base, **fields}, 400)["error"]
            self.assertEqual(error["param"], param, error)
            self.assertNotIn("response_format", error["message"])
        server.post(RESPONSES, {**base, "model": "other"}, 404)
        with self.assertRaises(self.openai.BadRequestError):
            self.client(server).create(model=MODEL, input="a", previous_response_id="resp_1")

    def test_a_stream_that_is_cut_fails(self):
        got = events(("event" + self.cut_stream(RESPONSES, {"input": "a", "max_output_tokens": 3000}).rpartition("event")[2]
                      .partition("\n\n")[0] + "\n\n").encode())[0]
        self.assertEqual((got["type"], got["response"]["status"], got["response"]["error"]["code"]),
                         ("response.failed", "failed", "server_error"))


class Messages(WithClient):
    def setUp(self):
        import anthropic
        self.anthropic = anthropic

    def client(self, server, **fields):
        out = self.anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="none", max_retries=0, **fields)
        self.addCleanup(out.close)
        return out.messages

    def test_answers_are_those_of_chat(self):
        server = self.serve(QWEN)
        client = self.client(server)
        call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": CITY}}
        messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "the sea"},
                    {"role": "assistant", "content": "So.", "reasoning_content": "Hm.", "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "call_1", "content": "warm"}, {"role": "user", "content": "And?"}]
        turns = [{"role": "user", "content": [{"type": "text", "text": "the "}, {"type": "text", "text": "sea"}]},
                 {"role": "assistant", "content": [
                     {"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "So."},
                     {"type": "tool_use", "id": "call_1", "name": "weather", "input": json.loads(CITY)}]},
                 {"role": "user", "content": [
                     {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "warm"}]},
                     {"type": "text", "text": "And?"}]}]
        for given, chat, tools in (({"messages": turns[:1]}, messages[1:2], []),
                                   ({"messages": turns, "system": [{"type": "text", "text": "Be short."}]}, messages, TOOLS)):
            if tools:
                given["tools"] = [{"name": one["function"]["name"], "description": one["function"]["description"],
                                   "input_schema": one["function"]["parameters"]} for one in tools]
            ask = {"model": MODEL, "max_tokens": 12, "extra_body": {"temperature": 0}, **given}
            body = {"model": MODEL, "temperature": 0, "max_tokens": 12, "messages": chat, "tools": [
                {"type": "function", "function": {name: one["function"][name] for name in ("name", "description", "parameters")}}
                for one in tools]}
            expected = server.post(CHAT, body)
            whole = client.create(**ask)
            self.assertEqual([one.text for one in whole.content], [expected["choices"][0]["message"]["content"]])
            self.assertEqual((whole.stop_reason, whole.stop_sequence, whole.usage.output_tokens), ("max_tokens", None, 12))
            prompt = whole.usage.input_tokens + whole.usage.cache_read_input_tokens
            self.assertEqual(prompt, expected["usage"]["prompt_tokens"])
            self.assertEqual(client.count_tokens(model=MODEL, **given).input_tokens, prompt)
            type(whole).model_validate(whole.model_dump(), strict=True)
            with client.stream(**ask) as stream:
                self.assertEqual("".join(stream.text_stream), whole.content[0].text)
                final = stream.get_final_message()
            self.assertEqual(final.content[0].text, whole.content[0].text)
            self.assertEqual((final.stop_reason, final.usage.output_tokens), ("max_tokens", 12))
            self.assertEqual(final.usage.input_tokens + final.usage.cache_read_input_tokens, prompt)
            self.assertGreater(final.usage.cache_read_input_tokens, 0)

    def test_events_in_order(self):
        server = self.serve(QWEN)
        text = "<think>\nThe city.\n</think>\n\n" + TURNS["qwen"][1]
        body = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "tools": CUSTOM_TOOLS, "temperature": 0, "max_tokens": 500,
                "structured_outputs": {"choice": [text]}, "thinking": {"type": "enabled", "budget_tokens": 1024}}
        whole = server.post(MESSAGES, body)
        self.assertEqual([one["type"] for one in whole["content"]], ["thinking", "text", "tool_use", "tool_use"])
        self.assertEqual((whole["content"][0]["thinking"], whole["content"][1]["text"]), ("The city.", "Let me see."))
        self.assertEqual([(one["name"], one["input"]) for one in whole["content"][2:]], structured_test.CALLS)
        self.assertEqual((whole["stop_reason"], whole["stop_sequence"]), ("tool_use", None))
        got = events(server.call("POST", MESSAGES, {**body, "stream": True})[2])
        self.assertEqual([one["type"] for one in got[:2]], ["message_start", "ping"])
        self.assertEqual((got[0]["message"]["content"], got[0]["message"]["stop_reason"]), ([], None))
        self.assertEqual(got[0]["message"]["usage"]["input_tokens"],
                         whole["usage"]["input_tokens"] + whole["usage"]["cache_read_input_tokens"])
        rest = [one for one in got[1:] if one["type"] != "ping"]
        self.assertEqual([one["type"] for one in rest[-2:]], ["message_delta", "message_stop"])
        self.assertEqual(rest[-2]["delta"], {"stop_reason": "tool_use", "stop_sequence": None})
        at = 0
        for index, block in enumerate(whole["content"]):
            own = [one for one in rest if one.get("index") == index]
            self.assertEqual(rest[at:at + len(own)], own, "blocks follow each other")
            at += len(own)
            self.assertEqual([own[0]["type"], own[-1]["type"]], ["content_block_start", "content_block_stop"])
            self.assertEqual({one["type"] for one in own[1:-1]}, {"content_block_delta"})
            self.assertGreater(len(own), 4)
            kind, key = {"thinking": ("thinking_delta", "thinking"), "text": ("text_delta", "text"),
                         "tool_use": ("input_json_delta", "partial_json")}[block["type"]]
            written = "".join(one["delta"][key] for one in own[1:-1] if one["delta"]["type"] == kind)
            self.assertEqual(json.loads(written) if kind == "input_json_delta" else written, block["input" if "input" in block else key])
        self.assertEqual(at, len(rest) - 2)

    def test_tools_by_the_client(self):
        server = self.serve(QWEN)
        client = self.client(server)
        ask = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "tools": CUSTOM_TOOLS, "tool_choice": {"type": "any"},
               "max_tokens": 500, "extra_body": {"temperature": 1, "seed": 3}}
        whole = client.create(**ask)
        self.assertEqual(({one.type for one in whole.content}, whole.stop_reason), ({"tool_use"}, "tool_use"))
        with client.stream(**ask) as stream:
            final = stream.get_final_message()
        self.assertEqual([(one.name, one.input) for one in final.content], [(one.name, one.input) for one in whole.content])
        back = [{"role": "user", "content": "a"}, {"role": "assistant", "content": [one.model_dump() for one in whole.content]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": one.id, "content": "5", "is_error": True}
                                             for one in whole.content]}]
        self.assertTrue(client.create(**{**ask, "messages": back}).content)
        one = client.create(**{**ask, "tool_choice": {"type": "tool", "name": "time", "disable_parallel_tool_use": True}})
        self.assertEqual([block.name for block in one.content], ["time"])
        none = client.create(**{**ask, "tool_choice": {"type": "none"}, "max_tokens": 8})
        self.assertEqual({block.type for block in none.content}, {"text"})

    def test_what_ended_it(self):
        server = self.serve(PLAIN)
        client = self.client(server)
        ask = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 100}

        def of(text, *stops):
            answer = client.create(**ask, stop_sequences=list(stops), extra_body={"structured_outputs": {"choice": [text]}})
            return "".join(one.text for one in answer.content), answer.stop_reason, answer.stop_sequence

        self.assertEqual(of("one two three", "three", "two"), ("one ", "stop_sequence", "two"))
        self.assertEqual(of("one two three", "x", "three"), ("one two ", "stop_sequence", "three"))
        self.assertEqual(of("one two three", "one"), ("", "stop_sequence", "one"))
        self.assertEqual(of("one two three", "four"), ("one two three", "end_turn", None))
        self.assertEqual(of("one two three"), ("one two three", "end_turn", None))
        with client.stream(**ask, stop_sequences=["two"], extra_body={"structured_outputs": {"choice": ["one two"]}}) as stream:
            final = stream.get_final_message()
        self.assertEqual((final.stop_reason, final.stop_sequence), ("stop_sequence", "two"))

    def test_structured_output(self):
        import jsonschema
        server = self.serve(PLAIN)
        schema = structured_test.SCHEMAS[0]
        answer = server.post(MESSAGES, {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "max_tokens": 400, "temperature": 1,
                                        "seed": 1, "output_config": {"format": {"type": "json_schema", "schema": schema}}})
        self.assertEqual(answer["stop_reason"], "end_turn")
        jsonschema.validate(json.loads(answer["content"][0]["text"]), schema)

    def test_wrong_calls(self):
        """Errors are in Anthropic's form, and name the place."""
        server = self.serve(QWEN)
        user = {"role": "user", "content": "a"}
        base = {"model": MODEL, "messages": [user], "max_tokens": 2}

        def content(*blocks, role="user"):
            return {"messages": [user, {"role": role, "content": list(blocks)}, user]}

        for fields, place in (({"max_tokens": None}, "max_tokens"), ({"max_tokens": -1}, "max_tokens"), ({"messages": []}, "messages"),
                              ({"messages": [5]}, "messages[0]"), ({"messages": [{"role": "king", "content": "a"}]}, "messages[0].role"),
                              ({"messages": [user, {"role": "assistant", "content": "So"}]}, "messages"),
                              (content({"type": "image", "source": {}}), "messages[1].content[0].type"),
                              (content({"type": "tool_use", "id": "a", "name": "b", "input": {}}), "messages[1].content[0].type"),
                              (content({"type": "tool_use", "id": "a", "name": "b"}, role="assistant"), "messages[1].content[0].input"),
                              (content({"type": "tool_result"}), "messages[1].content[0].tool_use_id"),
                              ({"system": 5}, "system"), ({"stop_sequences": "a"}, "stop_sequences"),
                              ({"stop_sequences": [5]}, "stop_sequences[0]"), ({"temperature": -1}, "temperature"),
                              ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools[0].type"),
                              ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
                              ({"tools": CUSTOM_TOOLS, "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
                              ({"tools": CUSTOM_TOOLS, "tool_choice": {"type": "all"}}, "tool_choice.type"),
                              ({"thinking": {"type": "deep"}}, "thinking.type"), ({"mcp_servers": [{}]}, "mcp_servers"),
                              ({"output_config": {"format": {"type": "json_schema", "schema": {"not": {}}}}},
                               "output_config.format.schema")):
            got = server.post(MESSAGES, {**base, **fields}, 400)
            self.assertEqual((got["type"], got["error"]["type"]), ("error", "invalid_request_error"))
            self.assertRegex(got["error"]["message"], f"^{re.escape(place)}[: .]", fields)
        self.assertEqual(server.post(MESSAGES, {**base, "model": "x"}, 404)["error"]["type"], "not_found_error")
        self.assertEqual(server.post(MESSAGES + "/count_tokens", {"model": MODEL}, 400)["type"], "error")
        with self.assertRaises(self.anthropic.NotFoundError):
            self.client(server).create(**{**base, "model": "x"})
        closed = self.serve(PLAIN, "--api-key", "first")
        self.assertEqual(closed.post(MESSAGES, base, 401)["error"]["type"], "authentication_error")
        self.assertTrue(closed.post(MESSAGES, base, x_api_key="first")["content"])

    def test_a_stream_that_is_cut_fails(self):
        got = self.cut_stream(MESSAGES, {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3000})
        self.assertRegex(got, r'event: error\ndata: \{"error":\{"message":"[^"]+","type":"overloaded_error"\},"type":"error"\}\n\n')


if __name__ == "__main__":
    server_test.PLAIT, server_test.FIXTURES = sys.argv[1:3]
    missing = server_test.missing_packages("jsonschema", "openai", "anthropic")
    if missing:
        print("NOT RUN: there is no package " + ", ".join(missing))
        sys.exit(0)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
