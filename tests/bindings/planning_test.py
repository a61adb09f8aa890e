"""`plait plan`, `plait machine` and the mesh "auto".

usage: planning_test.py PLAIT FIXTURES
"""
import json
import os
import pathlib
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import command_line

FIXTURES = None


def fixture(name):
    return os.path.join(FIXTURES, name)


class Planning(command_line.CommandLine):
    SMALL = "family=llama,layers=8,hidden=512,heads=8,kv_heads=4,feed_forward=1408,vocabulary=4096,sequence=512"

    def test_plan(self):
        words = ["plan", "--decoder", self.SMALL, "--machine", "a100", "--ranks", "4", "--batch", "8", "--mesh", "pipeline=2,tensor=2",
                 "--pipeline", "1f1b", "--recompute", "off"]
        out, _ = self.call(*words)
        self.assertRegex(out, r"^plait train MODEL --mesh pipeline=2,tensor=2 --pipeline 1f1b --stages \d,\d --micro-batches \d "
                              r"--batch 8 --seq 512 ")
        for word in ("step", "idle pipeline", "memory by pipeline rank", "what else was tried"):
            self.assertIn(word, out)
        plan = json.loads(self.call(*words, "--json")[0])
        self.assertEqual(plan["ranks"], 4)
        self.assertEqual(len(plan["memory"]), 2)
        self.assertAlmostEqual(plan["tokens_per_second"] * plan["step_seconds"], 8 * 512, delta=1)
        for rank in plan["memory"]:
            kinds = ("weights", "gradients", "optimizer", "section", "slots", "messages")
            self.assertAlmostEqual(rank["total"], sum(rank[kind] for kind in kinds), delta=8)
        self.assertEqual(plan["most_bytes"], max(rank["total"] for rank in plan["memory"]))
        self.assertTrue(all(row["changed"].startswith(("micro-batch", "tokens")) for row in plan["neighbours"]))

    def test_page(self):
        path = pathlib.Path(self.file("plan.html"))
        words = ["plan", "--decoder", self.SMALL, "--machine", "a100", "--ranks", "4", "--batch", "16", "--mesh", "pipeline=4"]
        plan = json.loads(self.call(*words, "--json", "--html", str(path))[0])
        self.assertEqual(plan["picture_seconds"], plan["pipeline_seconds"])
        # No point is above what the rank reserves, and each rank comes near it.
        for curve, rank in zip(plan["memory_over_time"], plan["memory"], strict=True):
            self.assertLessEqual(max(curve), rank["total"] + 1)
            self.assertGreater(max(curve), rank["total"] - rank["messages"] - 0.5 * rank["slots"])
            self.assertLess(curve[-1], max(curve))
        page = path.read_text(encoding="utf-8")
        self.assertEqual(page.count("<polyline"), 4)
        self.assertEqual(page.count("<circle"), 1 + len(plan["others"]))
        self.assertIn("plait train MODEL --mesh pipeline=4", page)
        for outside in ("http://", "https://", "<script"):
            self.assertNotIn(outside, page.replace("http://www.w3.org/2000/svg", ""))
        # A long step: the picture has its beginning.
        long = json.loads(self.call(*words[:-3], "4096", "--mesh", "pipeline=4", "--micro-batch", "512", "--pipeline", "1f1b", "--json",
                                    "--html", str(path))[0])
        self.assertLess(long["picture_seconds"], long["pipeline_seconds"])
        self.call("plan", "--decoder", self.SMALL, "--machine", "a100", "--ranks", "4", "--generate", "batch=4", "--html", str(path))
        self.assertIn("pipeline=2,tensor=2", path.read_text(encoding="utf-8"))
        self.assertNotIn("memory_over_time", json.loads(self.call(*words, "--json")[0]))

    def test_seats(self):
        words = ["plan", "--decoder", self.SMALL, "--machine", "a100", "--batch", "16", "--json"]
        plan = json.loads(self.call(*words, "--seats", "3:1", "--ranks", "4")[0])
        self.assertEqual((plan["options"]["mesh"], plan["options"]["seats"]), ("pipeline=4", "3:1"))
        self.assertEqual(plan["options"]["stages"].count(","), 1)
        held = [[rank[kind] for kind in ("weights", "gradients", "optimizer")] for rank in plan["memory"]]
        self.assertEqual(held[0], held[1])
        self.assertEqual(held[0], held[2])
        self.error(*words, "--seats", "3:1", "--mesh", "pipeline=3", names=["3:1", "4 pipeline ranks", "the mesh has 3"])
        self.error(*words, "--seats", "3:0", "--ranks", "4", names=["3:0"])
        self.error(*words, "--seats", "3:1", "--ranks", "4", "--pipeline", "interleaved:2", names=["seats", "interleaved"])
        # A trainer takes what a model's plan gives.
        model = fixture("gemma3-standard23")
        given = ["--machine", "a100", "--batch", "4", "--seq", "16", "--seats", "2:1", "--ranks", "3"]
        plan = json.loads(self.call("plan", model, *given, "--json")[0])
        options = [word for key, value in plan["options"].items() for word in ("--" + key.replace("_", "-"), str(value))]
        engine = json.loads(self.call("train", model, *options, "--plan", "--json")[0])["pipeline"]
        self.assertEqual([stage["seats"] for stage in engine["stages"]], [[0, 1], [2]])

    def test_sharded_tokens_and_experts(self):
        model = fixture("zoo/mixtral/dynamo18")
        words = ["plan", model, "--machine", "a100", "--ranks", "4", "--batch", "8", "--seq", "16", "--mesh", "data=2,tensor=2",
                 "--micro-batch", "32", "--zero", "0", "--recompute", "selective"]
        given = ["--seeds", "sequence", "--seeds", "expert_data"]
        self.assertIn(" ".join(given), self.call(*words, *given)[0])
        planned = json.loads(self.call(*words, *given, "--json")[0])
        self.assertEqual(planned["options"]["seeds"], given[1::2])
        options = [word for key, value in planned["options"].items() for one in (value if isinstance(value, list) else [value])
                   for word in ("--" + key.replace("_", "-"), str(one))]
        engine = json.loads(self.call("train", model, *options, "--plan", "--json")[0])["totals"]
        mine = planned["memory"][0]
        self.assertEqual(mine["weights"], engine["rank_frozen_bytes"] + engine["rank_trained_bytes"])
        self.assertEqual(mine["section"], engine["rank_arena_bytes"])
        # Without them they are searched, and the plan tells what another choice costs.
        searched = json.loads(self.call(*words, "--json")[0])
        told = {row["changed"] for row in searched["neighbours"]}
        self.assertEqual(len([row for row in told if row.startswith("tokens ")]), 1)
        self.assertEqual(len([row for row in told if "experts" in row]), 2)
        self.assertLessEqual(searched["step_seconds"], planned["step_seconds"])
        # A decoder whose experts alternate with single MLPs.
        small = self.SMALL + ",experts=4,experts_used=2,experts_every="
        every, second = (json.loads(self.call("plan", "--decoder", small + number, "--machine", "a100", "--batch", "8", "--json")[0])
                         for number in "12")
        self.assertEqual(every["parameters"] - second["parameters"], 4 * (3 * 3 * 512 * 1408 + 4 * 512))
        self.assertLess(second["step_seconds"], every["step_seconds"])

    def test_plan_of_generation(self):
        words = ["plan", "--decoder", self.SMALL, "--machine", "a100", "--ranks", "4", "--generate", "batch=4,prompt=64,context=512"]
        out, _ = self.call(*words)
        self.assertRegex(out, r"(?m)^MESH +TOKEN +PROMPT")
        self.assertRegex(out, r"(?m)^data=4 ")
        plan = json.loads(self.call(*words, "--json")[0])
        times = [one["token_seconds"] for one in [plan] + plan["others"]]
        self.assertEqual(times, sorted(times))
        meshes = {one["options"]["mesh"] for one in [plan] + plan["others"]}
        self.assertEqual(meshes, {"data=4", "data=2,tensor=2", "tensor=4", "pipeline=2,data=2", "pipeline=2,tensor=2", "pipeline=4"})
        self.error(*words[:-1], "batch=0", names=["generate", "batch=0"])
        self.error(*words, "--memory-bytes", "1M", names=["no mesh of 4 ranks fits"])
        self.error(*words, "--zero", "1", names=["zero", "generate"])
        given = json.loads(self.call(*words, "--mesh", "pipeline=2,tensor=2", "--json")[0])
        self.assertEqual([given["options"]["mesh"], given["others"]], ["pipeline=2,tensor=2", []])
        self.error(*words[:-1], "prompt=64,context=32", names=["context of 32", "prompt of 64"])

    def test_plan_of_a_model(self):
        words = ["plan", fixture("gemma3-standard23"), "--machine", "a100", "--ranks", "2", "--batch", "4", "--seq", "16"]
        out, _ = self.call(*words)
        self.assertTrue(out.startswith(f"plait train {fixture('gemma3-standard23')} --mesh "), out[:200])
        full, lora = (json.loads(self.call(*words, "--train", what, "--json")[0]) for what in ("full", "lora:4"))
        self.assertEqual(full["parameters"], json.loads(self.call("inspect", fixture("gemma3-standard23"), "--json")[0])["parameters"])
        self.assertEqual(lora["options"]["lora"], 4)
        self.assertLess(lora["memory"][0]["optimizer"], full["memory"][0]["optimizer"] / 4)
        # Its bytes are the engine's.
        for micro_batch, count in ("16", 4), ("32", 2):
            cut = ["--mesh", "pipeline=2", "--micro-batch", micro_batch, "--recompute", "off"]
            planned = json.loads(self.call(*words, *cut, "--json")[0])
            options = [word for key, value in planned["options"].items() for word in ("--" + key.replace("_", "-"), str(value))]
            engine = json.loads(self.call("train", fixture("gemma3-standard23"), *options, "--plan", "--json")[0])["pipeline"]
            self.assertEqual((planned["micro_batches"], engine["micro_batches"]), (count, count))
            for mine, its in zip(planned["memory"], engine["ranks"], strict=True):
                self.assertEqual(mine["slots"], its["slot_bytes"])
                self.assertEqual(mine["section"], its["arena_bytes"])
                self.assertEqual(mine["total"] - mine["messages"], its["rank_bytes"])
        same = json.loads(self.call(*words, *cut[:2], "--micro-batches", "2", "--recompute", "off", "--json")[0])
        self.assertEqual(same["options"]["micro_batch"], 32)
        tokens = json.loads(self.call(*words[:6], "--generate", "batch=4,prompt=8,context=16", "--json")[0])
        self.assertGreater(tokens["cache_bytes"], 0)
        self.error(*words, "--train", "lora", names=["--train", "lora:16"], status=2)
        self.error(*words, "--decoder", self.SMALL, names=["--decoder"], status=2)
        self.error(*words[:-2], "--seq", "100000", names=["seq is 100000"])

    def test_annotated_plan(self):
        """The plan is in the file: who trains or runs it by the file's stages gets the plan's."""
        out = self.file("annotated")
        words = ["plan", fixture("gemma3-standard23"), "--machine", "a100", "--ranks", "2", "--batch", "4", "--seq", "16",
                 "--mesh", "pipeline=2", "--micro-batch", "16"]
        plan = json.loads(self.call(*words, "--pipeline", "1f1b", "--stages", "2,1", "--annotate", out, "--json")[0])
        self.assertEqual(plan["options"]["stages"], "2,1")
        told = lambda model, stages: json.loads(self.call("train", model, "--mesh", "pipeline=2", "--stages", stages, "--seq", "16",
                                                          "--batch", "4", "--plan", "--json")[0])["pipeline"]["stages"]
        self.assertEqual(told(out, "file"), told(fixture("gemma3-standard23"), "2,1"))
        self.assertNotEqual(told(out, "file"), told(fixture("gemma3-standard23"), "1,2"))
        # Two stages a rank, which no generator has.
        self.call(*words, "--pipeline", "interleaved:2", "--annotate", self.file("interleaved"))
        self.error("plan", "--decoder", self.SMALL, "--machine", "a100", "--annotate", out, status=2, names=["--annotate", "--model"])

    def test_mesh_auto(self):
        words = ["generate", fixture("gemma3-standard23"), "--ids", "1,2,3", "--max-tokens", "8", "--temperature", "0", "--json"]
        log = self.file("log")
        chosen = json.loads(self.call(*words, "--mesh", "auto", "--log-dir", log)[0])
        self.assertEqual(chosen["ids"], json.loads(self.call(*words)[0])["ids"])
        lines = "".join(path.read_text() for path in pathlib.Path(log).iterdir())
        self.assertRegex(lines, r"mesh auto: .* by simulation of a token on this machine: one rank [\d.]+ ms")
        words = ("train", fixture("gemma3-standard23"), "--mesh", "auto", "--seq", "16", "--batch", "4", "--plan", "--json")
        plan = json.loads(self.call(*words)[0])
        self.assertIn(plan["ranks"], (1, 2, 4, 8))

    def test_wrong_plans(self):
        known = ["plan", "--decoder", self.SMALL, "--machine", "a100", "--batch", "8"]
        self.error("plan", "--decoder", self.SMALL, "--batch", "8", names=["machine is missing"])
        self.error(*known, "--ranks", "11", names=["no mesh of 11 ranks"])
        self.error(*known, "--ranks", "4", "--mesh", "tensor=2", names=["mesh has 2 ranks", "ranks is 4"])
        self.error(*known, "--ranks", "2", "--memory-bytes", "1M", names=["no plan", "the least takes"])
        self.error("plan", "--decoder", "family=bert", "--machine", "a100", names=["bert"])

    def test_machine(self):
        out, _ = self.call("machine", "h100")
        self.assertEqual(json.loads(out)["device"]["peak"]["bf16"], "989 TFLOP/s")
        path = self.file("machine.json")
        with open(path, "w") as file:
            file.write(out.replace("5 us", "5 GB", 1))
        self.error("machine", path, names=["machine.json", 'field "launch"', "5 GB"])
        self.error("machine", self.file("none.json"), names=["none.json", "a100, h100, h200, v100"])
        here = json.loads(self.call("machine", "--measure", "--ranks", "2", "--threads", "1")[0])
        self.assertEqual(here["levels"][0]["ranks"], 2)
        self.error("machine", names=["--measure"], status=2)


if __name__ == "__main__":
    command_line.CommandLine.plait, FIXTURES = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
