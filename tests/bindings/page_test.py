#!/usr/bin/env python3
"""plait serve: its page in a browser, Debian's Chromium, driven by Playwright.

usage: page_test.py PLAIT FIXTURES [--picture FILE.png]

--picture: also writes what the page looks like after a chat. Without Chromium, or Playwright in this Python or the environment of
bindings/python/get_python.sh, it prints NOT RUN.
"""
import json
import os
import re
import shutil
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import server_test  # noqa: E402
from structured_test import MODEL, PLAIN, WithServer  # noqa: E402

CHROMIUM = shutil.which("chromium")
PICTURE = None
CITY = {"type": "object", "properties": {"city": {"enum": ["Bonn", "Ulm"]}, "year": {"enum": [1900, 2000]}},
        "required": ["city", "year"], "additionalProperties": False}
LONG = {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3000}


class Page(WithServer):
    @classmethod
    def setUpClass(cls):
        from playwright.sync_api import expect, sync_playwright
        cls.expect = staticmethod(expect)
        cls.driver = sync_playwright().start()
        cls.addClassCleanup(cls.driver.stop)
        cls.browser = cls.driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        cls.addClassCleanup(cls.browser.close)

    def open(self, *words):
        """The page of a new server. At the end of the test: it has asked no other server, and reported no mistake of its own."""
        self.server = self.serve(PLAIN, *words)
        page = self.browser.new_page(viewport={"width": 1180, "height": 720})
        self.addCleanup(page.close)
        asked, mistakes = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        page.on("console", lambda message: "Content Security Policy" in message.text and mistakes.append(message.text))
        page.goto(self.server.address)
        self.addCleanup(lambda: (self.assertEqual(mistakes, []),
                                 self.assertEqual([url for url in asked if not url.startswith(self.server.address)], [])))
        return page

    def say(self, page, text, **fields):
        """Sends a message, with fields of the page set before; returns its answer."""
        for name, value in fields.items():
            if name == "schema":
                page.locator("details").evaluate("box => box.open = true")
            page.locator("#" + name.replace("_", "-")).fill(value)
        page.locator("#text").fill(text)
        page.locator("#text").press("Enter")
        self.expect(page.locator("#send")).to_be_visible(timeout=30000)
        return page.locator("#messages li.assistant").last

    def test_chat(self):
        page = self.open("--mesh", "tensor=2")
        self.expect(page.locator("#model option")).to_have_text([MODEL])
        answer = self.say(page, "the river", temperature="0", tokens="24", seed="7")
        note = answer.locator("small")
        self.expect(note).to_contain_text("24 tokens")
        body = {"model": MODEL, "messages": [{"role": "user", "content": "the river"}], "temperature": 0, "max_completion_tokens": 24}
        expected = self.server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]
        self.assertEqual(answer.text_content().removesuffix(note.text_content()), expected)
        # The second turn has the first one before it.
        prompts = [int(re.search(r"of (\d+) prompt tokens", line)[1]) for line in
                   (note.text_content(), self.say(page, "and the sea").locator("small").text_content())]
        self.assertGreater(prompts[1], prompts[0] + 20)
        self.expect(page.locator("#messages li")).to_have_count(4)
        # What the server does.
        self.expect(page.locator("#ranks tbody tr")).to_have_count(2)
        self.expect(page.locator("#ranks tbody tr").last).to_contain_text("1 (tensor 1)")
        self.expect(page.locator("#latency tbody tr").first).to_contain_text("ms")
        self.expect(page.locator("#pages-text")).to_contain_text("pages in use")
        for term in ("Tokens a second", "Running", "Waiting", "Memory"):
            self.expect(page.locator("#now dt", has_text=term)).to_have_count(1)
        if PICTURE:
            page.screenshot(path=PICTURE)
        page.locator("#reset").click()
        self.expect(page.locator("#messages li")).to_have_count(0)

    def test_schemas_and_mistakes(self):
        page = self.open()
        answer = self.say(page, "where", schema=json.dumps(CITY), temperature="1.5", tokens="100")
        note = answer.locator("small").text_content()
        said = json.loads(answer.text_content().removesuffix(note))
        self.assertIn((said["city"], said["year"]), [(city, year) for city in ("Bonn", "Ulm") for year in (1900, 2000)])
        error = page.locator("#error")
        for fields, words in (({"schema": "{"}, "the schema is not JSON"), ({"schema": '{"not": {}}'}, "not"),
                              ({"schema": "", "top_p": "7"}, "top_p")):
            self.say(page, "again", **fields)
            self.expect(error, str(fields)).to_be_visible()
            self.expect(error).to_contain_text(words)
        self.say(page, "again", top_p="0.9", tokens="3")
        self.expect(error).to_be_hidden()

    def test_stop_cancels(self):
        page = self.open()
        page.locator("details").evaluate("box => box.open = true")
        page.locator("#schema").fill(json.dumps(LONG))
        page.locator("#text").fill("count")
        page.locator("#text").press("Enter")
        self.expect(page.locator("#messages li.assistant")).to_contain_text("[")
        page.locator("#stop").click()
        self.expect(page.locator("#send")).to_be_visible()
        self.expect(page.locator("#messages li.assistant")).to_contain_text("[")  # what was there stays
        self.server.wait_for("plait_request_cancelled_total", 1)
        self.server.wait_for("plait_requests_running", 0)

    def test_key(self):
        page = self.open("--api-key", "secret")
        self.expect(page.locator("#error")).to_be_visible()
        page.locator("#key").fill("secret")
        page.locator("#key").blur()
        self.expect(page.locator("#model option")).to_have_text([MODEL])
        self.expect(page.locator("#error")).to_be_hidden()
        self.expect(self.say(page, "a", tokens="3").locator("small")).to_contain_text("3 tokens")


if __name__ == "__main__":
    if "--picture" in sys.argv:
        at = sys.argv.index("--picture")
        PICTURE = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    if not CHROMIUM or server_test.missing_packages("playwright"):
        print("NOT RUN: there is no " + ("package playwright" if CHROMIUM else "chromium"))
        sys.exit(0)
    server_test.PLAIT, server_test.FIXTURES = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
