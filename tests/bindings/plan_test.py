"""Plans of a mesh: the report's facts, its text against the files of plans/, its page, its errors.

usage: plan_test.py PLAIT FIXTURES [--write]

--write writes the files of plans/ anew.
"""
import html.parser
import json
import os
import subprocess
import sys
import tempfile
import unittest

from limits import HANG_S

PLAIT = FIXTURES = None
WRITE = False
HERE = os.path.dirname(os.path.abspath(__file__))

# Attention and MLP in a row owe two sums of the activations' size a layer, side by side one; the embedding owes one, and the
# logits are put together at the end.
PLANS = {
    "gpt2": ("gpt2-optimum18", 2),
    "gptj": ("zoo/gptj/optimum18", 1),
    "llama": ("llama-standard23", 2),
    "gemma3": ("gemma3-standard23", 2),
    "mixtral": ("zoo/mixtral/dynamo18", 2),
    "deepseek_v3": ("zoo/deepseek_v3/optimum18", 2),
    "minicpm3": ("zoo/minicpm3/dynamo18", 2),
}


def inspect(model, *words):
    done = subprocess.run([PLAIT, "inspect", os.path.join(FIXTURES, model), "--cache-dir", "", *words], capture_output=True,
                          timeout=HANG_S)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Page(html.parser.HTMLParser):
    """What a page is made of."""
    VOID = {"meta", "rect", "br"}

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.texts, self.faults = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes another")

    def handle_data(self, data):
        self.texts.append(data)


class Plans(unittest.TestCase):
    maxDiff = None

    def plan(self, model, mesh, *seeds):
        words = [word for each in seeds for word in ("--seeds", each)]
        status, out, err = inspect(model, "--mesh", mesh, "--json", *words)
        self.assertEqual(status, 0, err)
        return json.loads(out)

    def error(self, *words, status=1, names=()):
        found, out, err = inspect("gemma3-standard23", *words)
        self.assertEqual((found, out), (status, ""), err)
        self.assertTrue(err.startswith("plait: error: ") and err.count("\n") == 1, err)
        for name in names:
            self.assertIn(name, err)

    def test_stages_of_generation(self):
        """What stages hold is what the whole does, but for a table that two of them read, and a message is the residual stream."""
        words = ("--generate", "--option", "stages=1,1", "--json")
        whole = self.plan("llama-untied-optimum18", "tensor=2")
        for mesh, ranks in ("pipeline=2", 1), ("pipeline=2,tensor=2", 2):
            status, out, err = inspect("llama-untied-optimum18", "--mesh", mesh, *words)
            self.assertEqual(status, 0, err)
            plan = json.loads(out)
            self.assertEqual((plan["mesh"], plan["ranks"]), (mesh, 2 * ranks))
            stages = plan["stages"]
            self.assertEqual([one["stage"] for one in stages], [0, 1])
            self.assertEqual([one["layers"] for one in stages], [1, 1])
            totals = plan["totals"]
            cache = sum(one["rank_cache_bytes_per_token"] for one in stages)
            self.assertEqual(cache, totals["rank_cache_bytes_per_token"])
            if ranks == 2:
                self.assertEqual(cache, whole["totals"]["rank_cache_bytes_per_token"])
            weights = sum(one["rank_weight_bytes"] for one in stages)
            self.assertGreater(weights, 0.99 * totals["rank_weight_bytes"])  # small tables are made when programs are
            self.assertLess(weights, 1.1 * totals["rank_weight_bytes"])
            hidden = int(json.loads(inspect("llama-untied-optimum18", "--json")[1])["hidden"])
            self.assertEqual([one["rank_gives_bytes_per_token"] for one in stages], [4 * hidden, 0])
        status, out, err = inspect("llama-untied-optimum18", "--mesh", "pipeline=2", "--generate", "--option", "stages=1,1")
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"STAGE +LAYERS +WEIGHTS PER RANK")
        self.assertRegex(out, r"\n +0 +1 ")
        self.error("--mesh", "tensor=2", "--generate", status=2, names=["--generate", "--mesh pipeline=2"])

    def test_stages_of_a_hybrid_decoder(self):
        """Pages per token and states per sequence are counted apart, and together are the whole's."""
        status, out, err = inspect("zoo/lfm2/hf5", "--mesh", "pipeline=2", "--generate", "--json")
        self.assertEqual(status, 0, err)
        plan = json.loads(out)
        for what in "cache_bytes_per_token", "state_bytes_per_sequence":
            whole = plan["totals"]["rank_" + what]
            self.assertGreater(whole, 0)
            self.assertEqual(sum(one["rank_" + what] for one in plan["stages"]), whole, what)

    def test_sums_of_a_layer(self):
        for model, sums in PLANS.values():
            for mesh in ("tensor=2", "tensor=4"):
                with self.subTest(model=model, mesh=mesh):
                    plan = self.plan(model, mesh)
                    kinds = [[one["kind"] for one in part["collectives"]] for part in plan["parts"]]
                    self.assertEqual(kinds[0], ["all_reduce"])
                    self.assertGreaterEqual(len(kinds), 4)
                    for layer in kinds[1:-1]:
                        self.assertEqual(layer, ["all_reduce"] * sums)
                    self.assertEqual(kinds[-1], ["all_gather"])

    def test_totals_are_those_of_the_parts(self):
        for model, _ in PLANS.values():
            with self.subTest(model=model):
                plan = self.plan(model, "tensor=4")
                totals, parts = plan["totals"], plan["parts"]
                self.assertEqual((plan["mesh"], plan["ranks"], plan["seeds"]), ("tensor=4", 4, ["tensor"]))
                weights = [one for part in parts for one in part["weights"]]
                held = sum(one["rank_bytes"] for one in weights if not one["shared"])
                # Numbers, sizes and places are counted and not listed.
                self.assertLessEqual(held, totals["rank_weight_bytes"])
                self.assertLess(totals["rank_weight_bytes"] - held, 1024)
                self.assertLess(totals["rank_weight_bytes"], totals["weight_bytes"])
                self.assertEqual(totals["all_ranks_weight_bytes"], 4 * totals["rank_weight_bytes"])
                for one in weights:
                    pieces = 1
                    for size, part in zip(one["dims"], one["parts"], strict=True):
                        self.assertEqual(size % part, 0)
                        pieces *= part
                    self.assertEqual(one["rank_bytes"], one["bytes"] // pieces)
                moved = [one for part in parts for one in part["collectives"]]
                self.assertEqual(totals["collectives"]["all_reduce"] + 1, len(moved))
                self.assertAlmostEqual(totals["bytes_per_token"], sum(one["bytes"] for one in moved))
                self.assertEqual(plan["priced_at"], {"tokens": 16, "rows": 4})
                for part in parts:
                    for one in part["collectives"]:
                        self.assertLessEqual(one["after"], len(part["weights"]))
                    for choice in part["choices"]:
                        taken = [way for way in choice["ways"] if way["chosen"]]
                        self.assertEqual(len(taken), 1)
                        self.assertEqual(taken[0]["bytes"], min(way["bytes"] for way in choice["ways"]))

    def test_bytes(self):
        # GPT-2 of 64 hidden features, 512 tokens, 4 heads of 16: each rank of four sends 2 (n-1)/n of a row for a sum, and
        # three times its quarter of the logits.
        plan = self.plan("gpt2-optimum18", "tensor=4")
        self.assertEqual(plan["totals"]["bytes_per_token"], 5 * 2 * 3 / 4 * 64 * 4 + 3 * 128 * 4)
        self.assertEqual(plan["totals"]["rank_cache_bytes_per_token"], 2 * 2 * 16 * 4)
        self.assertEqual(plan["totals"]["cache_bytes_per_token"], 2 * 2 * 64 * 4)
        # In bf16 matrices and the cache are half as large.
        status, out, err = inspect("gpt2-optimum18", "--mesh", "tensor=4", "--json", "--dtype", "bf16")
        self.assertEqual(status, 0, err)
        half = json.loads(out)["totals"]
        self.assertEqual(half["rank_cache_bytes_per_token"], 2 * 16 * 4)
        self.assertLess(half["rank_weight_bytes"], 0.6 * plan["totals"]["rank_weight_bytes"])

    def test_reasons(self):
        plan = self.plan("gemma3-standard23", "tensor=2")
        whole = {one["name"]: one["whole"] for part in plan["parts"] for one in part["weights"] if one["whole"]}
        self.assertEqual(len(whole), 6)
        self.assertRegex(whole["model.layers.0.self_attn.k_proj.weight"],
                         r'^dim 0: 16 is needed whole by node ".*_norm/.*" .*; dim 1: 48 is needed whole by node ')
        # A vocabulary that does not divide stays whole, and the plan shows it.
        plan = self.plan("llama-standard23", "tensor=3")
        whole = {one["name"]: one["whole"] for part in plan["parts"] for one in part["weights"] if one["whole"]}
        self.assertIn("512 is no multiple of 3", whole["model.embed_tokens.weight"])

    def test_seeds(self):
        plan = self.plan("llama-standard23", "tensor=2", "data", "*.up_proj.weight=[tensor, -]")
        cuts = {one["name"]: one["cut"] for part in plan["parts"] for one in part["weights"]}
        self.assertEqual(cuts["model.layers.0.mlp.up_proj.weight"], "[tensor, -]")
        self.assertEqual(plan["seeds"], ["data", "*.up_proj.weight=[tensor, -]"])
        searched = self.plan("llama-standard23", "tensor=2", "search")["totals"]["estimate"]
        given = self.plan("llama-standard23", "tensor=2")["totals"]["estimate"]
        self.assertLessEqual(sum(searched.values()), sum(given.values()))
        replicas = self.plan("llama-standard23", "data=4")
        self.assertEqual(replicas["totals"]["collectives"], {})
        self.assertEqual(replicas["totals"]["all_ranks_weight_bytes"], 4 * replicas["totals"]["weight_bytes"])

    def test_texts(self):
        for name, (model, _) in PLANS.items():
            with self.subTest(name=name):
                status, out, err = inspect(model, "--mesh", "tensor=2")
                self.assertEqual(status, 0, err)
                path = os.path.join(HERE, "plans", name + ".plan")
                if WRITE:
                    with open(path, "w") as file:
                        file.write(out)
                with open(path) as file:
                    self.assertEqual(out, file.read())

    def page_text(self, path):
        """The text of a page that is well-formed, self-contained and accessible."""
        with open(path) as file:
            source = file.read()
        page = Page()
        page.feed(source)
        self.assertEqual((page.faults, page.open), ([], []))
        self.assertEqual(page.tags[0], ("html", {"lang": "en"}))
        names = [tag for tag, _ in page.tags]
        self.assertEqual([names.count(tag) for tag in ("script", "link", "img", "iframe")], [0, 0, 0, 0])
        self.assertFalse(any(key in ("src", "href") for _, attributes in page.tags for key in attributes))
        self.assertIn("prefers-color-scheme: dark", source)
        for tag, attributes in page.tags:
            if tag == "svg":
                self.assertTrue(attributes.get("aria-label") or attributes.get("aria-hidden"))
            if tag == "th":
                self.assertEqual(attributes["scope"], "col")
        return "".join(page.texts)

    def test_page(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.html")
            for model, _ in PLANS.values():
                status, out, err = inspect(model, "--mesh", "tensor=4", "--html", path)
                self.assertEqual(status, 0, err)
                self.assertTrue(out.startswith("mesh "))
                text = self.page_text(path)
                for word in ("all_reduce", "After the layers", "tensor=4"):
                    self.assertIn(word, text)
                self.assertRegex(text, r"Layers? 0")
            # A model itself, one that is not recognised, and training in pipeline stages.
            for model, words, parts in (
                    ("gemma3-standard23", [], ("Recognised patterns", "past_key_values.0.key", "Cache per token", "Opsets")),
                    ("zoo/bert/plain.onnx", [], ("it runs op by op", "Nodes by op")),
                    ("gemma3-standard23", ["--mesh", "pipeline=2"], ("Stages, and what crosses", "after 0F to 1", "1B0 rank 1"))):
                status, _, err = inspect(model, *words, "--html", path)
                self.assertEqual(status, 0, err)
                text = self.page_text(path)
                for part in parts:
                    self.assertIn(part.lower(), text.lower())
            status, _, err = inspect("gpt2-optimum18", "--mesh", "tensor=4", "--html", os.path.join(folder, "no", "p.html"))
            self.assertEqual(status, 2)
            self.assertIn("p.html", err)

    def test_errors(self):
        self.error("--mesh", "tensor=0", names=["tensor", "0"])
        self.error("--mesh", "rows=2", names=["rows", "tensor"])
        self.error("--mesh", "tensor=2", "--seeds", "megatron", names=["megatron", "PATTERN=SHARDING"])
        self.error("--mesh", "tensor=2", "--seeds", "*.up_prj.weight=[tensor, -]", names=["up_prj", "up_proj.weight"])
        self.error("--mesh", "tensor=3", "--seeds", "*.up_proj.weight=[tensor, -]", names=["into 3 parts", "[64, 48]"])
        self.error("--mesh", "tensor=2", "--seeds", "*.up_proj.weight=[rows, -]", names=["no axis", "rows"])
        self.error("--mesh", "tensor=7", names=["shards no weight", "tensor=7"])
        self.error("--seeds", "tensor", status=2, names=["--mesh"])
        with open(os.path.join(HERE, "..", "fixtures", "zoo", "manifest.json")) as file:
            plain = [one for one in json.load(file)["models"] if one["plain"]]
        for one in plain[:1]:
            status, out, err = inspect(os.path.join("zoo", one["name"]), "--mesh", "tensor=2")
            self.assertEqual((status, out), (1, ""))
            self.assertIn("only a recognised decoder", err)


if __name__ == "__main__":
    PLAIT, FIXTURES = sys.argv[1:3]
    WRITE = "--write" in sys.argv[3:]
    unittest.main(argv=sys.argv[:1] + [word for word in sys.argv[3:] if word != "--write"])
