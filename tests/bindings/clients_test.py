#!/usr/bin/env python3
"""plait serve, by clients that others wrote: OpenAI's for Node and Java, LangChain, and the load generator autocannon.

usage: clients_test.py PLAIT FIXTURES

OpenAI's for Python is in server_test.py, its Responses and Anthropic's in agents_test.py. The client for Node runs on the Node that the
package playwright carries. They come of tests/bindings/clients/get_node.sh and get_java.sh; what is not there is skipped. The model has
random weights, so that a valid answer has its form of the schema.
"""
import asyncio
import glob
import json
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server_test  # noqa: E402
import structured_test  # noqa: E402
from limits import HANG_S  # noqa: E402
from structured_test import MODEL, QWEN  # noqa: E402

NODE_FOLDER, JAVA_FOLDER = (os.path.join(server_test.ROOT, ".cache", name) for name in ("node", "java"))
SCHEMA = {"title": "answer", "description": "an answer", "type": "object", "required": ["colour", "n"], "additionalProperties": False,
          "properties": {"colour": {"enum": ["red", "blue"]}, "n": {"type": "integer", "minimum": 0, "maximum": 9}}}


def node():
    """The program, and whether the client is there."""
    packages = os.path.dirname(os.path.dirname(server_test.ENVIRONMENT))
    found = glob.glob(os.path.join(packages, "lib", "python3*", "site-packages", "playwright", "driver", "node"))
    return found[0] if found and os.path.exists(os.path.join(NODE_FOLDER, "node_modules", "openai")) else None


class WithModel(structured_test.WithServer):
    def setUp(self):
        self.server = self.serve(QWEN)

    def expected(self):
        ask = {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "temperature": 0, "max_tokens": 12}
        return self.server.post("/v1/chat/completions", ask)["choices"][0]["message"]["content"]

    def assert_valid(self, answer):
        self.assertIn(answer["colour"], ("red", "blue"))
        self.assertIn(answer["n"], range(10))
        self.assertEqual(set(answer), {"colour", "n"})


class Node(WithModel):
    def test_all_that_it_can(self):
        if not node():
            self.skipTest("NOT RUN: there is no package openai of Node")
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients", "openai.mjs")
        done = subprocess.run([node(), script, NODE_FOLDER, self.server.address, MODEL], capture_output=True, text=True, timeout=HANG_S)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        got = json.loads(done.stdout)
        text = self.expected()
        self.assertEqual(got["chat"], [text, text])
        self.assertEqual((got["streamed"], got["events"], got["response"][1]), (text, text, text))
        self.assertEqual([len(got["logprobs"]), got["logprobs"][0][1]], [got["usage"]["completion_tokens"] / 2, 2])
        for name in ("parsed", "arguments", "streamedArguments", "ran"):
            self.assert_valid(got[name])
        self.assertEqual(got["call"], {"name": "weather", "reason": "tool_calls"})
        self.assertIn(got["response"][0], ("completed", "incomplete"))
        self.assertEqual(got["responseEvents"][0], "response.created")
        self.assertIn(got["responseEvents"][1], ("response.completed", "response.incomplete"))
        self.assertGreater(got["completion"], 5)
        self.assertEqual((got["embedding"], got["models"]), ([48, 48], [MODEL]))
        self.assertEqual(got["notFound"], {"name": "NotFoundError", "status": 404, "code": "model_not_found", "param": "model"})
        self.assertEqual((got["badRequest"]["name"], got["badRequest"]["param"]), ("BadRequestError", "temperature"))
        self.assertEqual((got["aborted"], got["timeout"]["name"]), (True, "APIConnectionTimeoutError"))
        self.server.wait_for("plait_requests_running", 0)
        self.server.wait_for("plait_cache_pages_free", self.server.metric("plait_cache_pages"))


class Load(WithModel):
    def load(self, *words):
        """Answers by status, and what autocannon counts as failed."""
        program = os.path.join(NODE_FOLDER, "node_modules", "autocannon", "autocannon.js")
        if not node() or not os.path.exists(program):
            self.skipTest("NOT RUN: there is no package autocannon of Node")
        done = subprocess.run([node(), program, "--json", "--no-progress", "--timeout", str(HANG_S), *words], capture_output=True,
                              text=True, timeout=HANG_S)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        got = json.loads(done.stdout)
        self.assertEqual((got["errors"], got["timeouts"], got["mismatches"]), (0, 0, 0))
        print(words[-1], round(got["requests"]["total"] / got["duration"]), "answers a second, p99", got["latency"]["p99"], "ms")
        return {int(status): row["count"] for status, row in got["statusCodeStats"].items()}

    def test_a_load_generator(self):
        """32 connections, each with the next call as soon as it has an answer; then more than may wait."""
        body = json.dumps({"model": MODEL, "prompt": "a", "max_tokens": 8, "temperature": 0})
        ask = ["-m", "POST", "-H", "content-type=application/json", "-b", body]
        self.assertEqual(set(self.load("-c", "32", "-a", "2000", self.server.address + "/health")), {200})
        self.assertEqual(self.load("-c", "32", "-a", "200", *ask, self.server.address + "/v1/completions"), {200: 200})
        small = self.serve(QWEN, "--queue", "4", "--option", "running=2")
        statuses = self.load("-c", "64", "-a", "400", *ask, small.address + "/v1/completions")
        self.assertEqual(set(statuses), {200, 429})
        small.wait_for("plait_requests_running", 0)
        small.wait_for("plait_cache_pages_free", small.metric("plait_cache_pages"))


class Java(WithModel):
    def test_all_that_it_can(self):
        if not shutil.which("java") or not glob.glob(os.path.join(JAVA_FOLDER, "openai-java-*.jar")):
            self.skipTest("NOT RUN: there is no package openai-java")
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients", "OpenAiClient.java")
        done = subprocess.run(["java", "-cp", os.path.join(JAVA_FOLDER, "*"), script, self.server.address, MODEL],
                              capture_output=True, text=True, timeout=HANG_S)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-3000:])
        got = dict(line.split("\t", 1) for line in done.stdout.splitlines())
        text = self.expected().replace("\\", "\\\\").replace("\n", "\\n")
        self.assertEqual([got[name] for name in ("chat", "stream", "async", "response")], [text] * 4)
        self.assertEqual((got["logprobs"], got["embedding"], got["models"], got["left"]), ("[2]", "48", MODEL, "true"))
        self.assertGreater(int(got["tokens"]), 0)
        for name in ("structured", "called"):
            self.assertRegex(got[name], r"^(red|blue) (true|false)$")
        self.assertEqual((got["notFound"], got["badRequest"]), ("404 model_not_found model", "400 temperature"))
        self.server.wait_for("plait_requests_running", 0)
        self.server.wait_for("plait_cache_pages_free", self.server.metric("plait_cache_pages"))


class LangChain(WithModel):
    def setUp(self):
        super().setUp()
        import langchain_openai
        self.model = langchain_openai.ChatOpenAI(base_url=self.server.address + "/v1", api_key="none", model=MODEL, temperature=0,
                                                 max_completion_tokens=12, max_retries=0)

    def test_chat_stream_and_batch(self):
        text = self.expected()
        answer = self.model.invoke("a")
        self.assertEqual((answer.content, answer.usage_metadata["output_tokens"] > 0), (text, True))
        self.assertEqual("".join(part.content for part in self.model.stream("a")), text)
        self.assertEqual([one.content for one in self.model.batch(["a"] * 4)], [text] * 4)

        async def streamed():
            return "".join([part.content async for part in self.model.astream("a")])
        self.assertEqual(asyncio.run(streamed()), text)
        probable = self.model.bind(logprobs=True, top_logprobs=2).invoke("a").response_metadata["logprobs"]["content"]
        self.assertEqual(len(probable[0]["top_logprobs"]), 2)
        responses = self.model.model_copy(update={"use_responses_api": True}).invoke("a")
        self.assertEqual(responses.text, text)

    def test_structured_output_and_tools(self):
        model = self.model.model_copy(update={"max_tokens": 400, "temperature": 1.5})
        for _ in range(5):
            self.assert_valid(model.with_structured_output(SCHEMA, method="json_schema").invoke("a"))
            self.assert_valid(model.with_structured_output(SCHEMA, method="function_calling").invoke("a"))
        bound = model.bind_tools([SCHEMA], tool_choice="any", parallel_tool_calls=False)
        self.assert_valid(bound.invoke("a").tool_calls[0]["args"])
        whole = None
        for part in bound.stream("a"):
            whole = part if whole is None else whole + part
        self.assertEqual(whole.tool_calls[0]["name"], "answer")
        self.assert_valid(whole.tool_calls[0]["args"])
        # The answer of a tool goes back.
        from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
        call = {"name": "answer", "args": {"colour": "red", "n": 1}, "id": "1"}
        turns = [HumanMessage("a"), AIMessage("", tool_calls=[call]), ToolMessage("warm", tool_call_id="1")]
        self.assertGreater(self.model.invoke(turns).usage_metadata["input_tokens"], self.model.invoke("a").usage_metadata["input_tokens"])

    def test_errors_and_leaving(self):
        import openai
        with self.assertRaises(openai.NotFoundError):
            self.model.model_copy(update={"model_name": "other"}).invoke("a")
        with self.assertRaises(openai.BadRequestError):
            self.model.invoke("a " * 5000)
        stream = self.model.model_copy(update={"max_tokens": 3000, "extra_body": {"ignore_eos": True}}).stream("a")
        next(stream)
        stream.close()
        self.server.wait_for("plait_requests_running", 0)


if __name__ == "__main__":
    server_test.PLAIT, server_test.FIXTURES = sys.argv[1:3]
    missing = server_test.missing_packages("langchain_openai", "jsonschema")
    if missing:
        print("NOT RUN: there is no package " + ", ".join(missing))
        sys.exit(0)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
