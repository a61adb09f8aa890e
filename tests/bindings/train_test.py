"""`plait train`, `plait eval`, `plait export` of what was trained: what they answer, write and refuse.

usage: train_test.py PLAIT FIXTURES SAMPLE, where SAMPLE is samples/c/finetune.c, built
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import npy_files
from limits import HANG_S

PLAIT = FIXTURES = SAMPLE = None
MODEL = "gemma3-standard23"


def fixture(name):
    return os.path.join(FIXTURES, name)


def texts(count, seed):
    words = ["the river", "and the sea", "a boat", "goes down", "in the morning", "with the wind", "slowly", "home"]
    draw = random.Random(seed)
    return [" ".join(draw.choice(words) for _ in range(10)) for _ in range(count)]


class Training(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.data = self.lines("data.jsonl", [{"text": text} for text in texts(48, 1)])
        self.held_out = self.lines("held-out.jsonl", [{"text": text} for text in texts(8, 2)])

    def path(self, name):
        return os.path.join(self.folder, name)

    def lines(self, name, rows):
        with open(self.path(name), "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        return self.path(name)

    def call(self, *words, status=0):
        environment = dict(os.environ, XDG_CACHE_HOME=self.path("cache"))
        done = subprocess.run([PLAIT, *words], capture_output=True, env=environment, timeout=HANG_S)
        self.assertEqual(done.returncode, status, (words, done.stderr))
        return done.stdout.decode(), done.stderr.decode()

    def error(self, *words, names=(), status=1):
        out, err = self.call(*words, status=status)
        self.assertEqual(out, "")
        self.assertTrue(err.startswith("plait: error: ") and err.count("\n") == 1, err)
        for name in names:
            self.assertIn(name, err)

    def train(self, out, *words, data=None, model=MODEL, rate="3e-3"):
        answer, _ = self.call("train", fixture(model), "--data", data or self.data, "--out", self.path(out), "--json",
                              "--lr", rate, "--batch", "8", "--threads", "2", *words)
        return json.loads(answer)

    def evaluate(self, *words, model=MODEL, data=None):
        out, _ = self.call("eval", fixture(model) if not os.path.isabs(model) else model, "--data",
                           data or self.held_out, "--json", *words)
        return json.loads(out)

    def test_run(self):
        before = self.evaluate()
        answer = self.train("run", "--steps", "12", "--eval-data", self.held_out, "--evaluate-every", "6")
        self.assertEqual((answer["ending"], answer["steps"], len(answer["losses"])), ("steps", 12, 12))
        self.assertEqual(len(answer["timings"]["step_s"]), 12)
        self.assertEqual([row["step"] for row in answer["evaluations"]], [6, 12])
        self.assertLess(answer["losses"][-1], 0.9 * answer["losses"][0])
        self.assertTrue(min(answer["tokens"]) > 0 < answer["timings"]["tokens_per_s"])
        self.assertGreater(answer["peak_memory_bytes"], answer["native_bytes"])
        for name in ("log", "picture", "checkpoint", "best"):
            self.assertTrue(os.path.exists(answer["files"][name]), name)
        with open(answer["files"]["log"]) as file:
            self.assertEqual([json.loads(line)["step"] for line in file], list(range(1, 13)))
        # eval computes for the checkpoint what the run reported, and the same for the file that it becomes.
        last = answer["evaluations"][-1]["loss"]
        self.assertLess(last, 0.9 * before["loss"])
        for checkpoint in (answer["files"]["checkpoint"], self.path("run")):
            self.assertAlmostEqual(self.evaluate("--checkpoint", checkpoint)["loss"], last, delta=1e-4 * last)
        self.call("export", fixture(MODEL), "--checkpoint", answer["files"]["checkpoint"], "--out", self.path("tuned"))
        tuned = self.evaluate(model=self.path("tuned"))
        self.assertAlmostEqual(tuned["loss"], last, delta=1e-4 * last)
        self.assertEqual(tuned["targets"], before["targets"])
        self.error("export", fixture(MODEL), "--checkpoint", answer["files"]["checkpoint"], "--out",
                   self.path("tuned"), names=["there already"])

    def test_adapter(self):
        before = self.evaluate()["loss"]
        answer = self.train("run", "--steps", "12", "--lora", "4", rate="1e-2")
        adapter = answer["files"]["adapter"]
        with open(os.path.join(adapter, "adapter_config.json")) as file:
            self.assertEqual(json.load(file)["r"], 4)
        after = self.evaluate("--adapter", adapter)["loss"]
        self.assertLess(after, 0.99 * before)
        self.assertAlmostEqual(self.evaluate("--checkpoint", self.path("run"))["loss"], after, delta=1e-4 * after)
        for name, words in (("merged", ["--adapter", adapter]), ("again", ["--checkpoint", self.path("run")])):
            self.call("export", fixture(MODEL), *words, "--out", self.path(name))
            self.assertAlmostEqual(self.evaluate(model=self.path(name))["loss"], after, delta=1e-4 * after)
        words = ["--prompt", "the river", "--max-tokens", "12", "--temperature", "0", "--ignore-eos", "--json"]
        beside, merged, plain = (json.loads(self.call("generate", *more, *words)[0])["ids"] for more in (
            [fixture(MODEL), "--adapter", adapter], [self.path("merged")], [fixture(MODEL)]))
        self.assertEqual(beside, merged)
        self.assertNotEqual(beside, plain)
        # A run begins with an adapter where that one ended, and with a checkpoint as well.
        for words in (["--adapter", adapter], ["--checkpoint", self.path("run")]):
            more = self.train("more" + words[0], "--steps", "1", *words)
            self.assertAlmostEqual(more["losses"][0], answer["losses"][-1], delta=0.2 * answer["losses"][-1])
        self.error("eval", fixture("gpt2-optimum18"), "--data", self.npy("ids.npy"), "--adapter", adapter,
                   names=["fits no weight"])

    def test_prefix(self):
        before = self.evaluate()["loss"]
        answer = self.train("run", "--steps", "12", "--prefix", "5", rate="0.1")
        adapter = answer["files"]["adapter"]
        with open(os.path.join(adapter, "adapter_config.json")) as file:
            self.assertEqual(json.load(file)["num_virtual_tokens"], 5)
        after = self.evaluate("--adapter", adapter)["loss"]
        self.assertLess(after, 0.998 * before)  # a random model of one key head learns little so
        words = ["--prompt", "the river", "--max-tokens", "12", "--temperature", "0", "--ignore-eos", "--json"]
        behind, plain = (json.loads(self.call("generate", fixture(MODEL), *more, *words)[0])["ids"]
                         for more in (["--adapter", adapter], []))
        self.assertNotEqual(behind, plain)
        for words in (["--adapter", adapter], ["--checkpoint", self.path("run")]):
            self.error("export", fixture(MODEL), *words, "--out", self.path("merged"), names=["a prefix", "keep it apart"])
        # A checkpoint gives the same, and becomes an adapter.
        self.assertAlmostEqual(self.evaluate("--checkpoint", self.path("run"))["loss"], after, delta=1e-5 * after)
        self.call("export", fixture(MODEL), "--checkpoint", self.path("run"), "--apart", "--out", self.path("apart"))
        self.assertAlmostEqual(self.evaluate("--adapter", self.path("apart"))["loss"], after, delta=1e-5 * after)
        more = self.train("more", "--steps", "1", "--adapter", adapter)
        self.assertAlmostEqual(more["losses"][0], answer["losses"][-1], delta=0.2 * answer["losses"][-1])
        self.assertTrue(os.path.exists(os.path.join(more["files"]["adapter"], "adapter_model.safetensors")))

    def test_best_adapter_of_a_quantised_model(self):
        """Its weights take nothing in: checkpoints are evaluated beside them, and the best becomes an adapter."""
        model, data = "zoo/qwen3/q_int4", self.npy("ids.npy")
        words = ["--seq", "32", "--steps", "6", "--lora", "4", "--eval-data", data, "--evaluate-every", "2"]
        answer = self.train("run", *words, data=data, model=model, rate="1e-2")
        best = answer["files"]["best"]
        loss = min(row["loss"] for row in answer["evaluations"])
        words = ["--seq", "32"]
        self.assertAlmostEqual(self.evaluate("--checkpoint", best, *words, model=model, data=data)["loss"], loss,
                               delta=1e-5 * loss)
        self.error("export", fixture(model), "--checkpoint", best, "--out", self.path("merged"), names=["--apart"])
        self.call("export", fixture(model), "--checkpoint", best, "--apart", "--out", self.path("best"))
        self.assertAlmostEqual(self.evaluate("--adapter", self.path("best"), *words, model=model, data=data)["loss"], loss,
                               delta=1e-5 * loss)
        self.error("export", fixture(model), "--apart", "--out", self.path("x"), status=2, names=["--checkpoint"])

    def test_checkpoint_of_a_model_that_rounds_activations(self):
        """What trains it is said to whatever reads the checkpoint, and an error without it says so."""
        model, data, exact = "zoo/qwen3/q_static", self.npy("ids.npy"), ["--option", "activations=exact"]
        answer = self.train("run", "--seq", "32", "--steps", "3", "--lora", "4", *exact, data=data, model=model, rate="1e-2")
        loss = self.evaluate("--checkpoint", self.path("run"), "--seq", "32", *exact, model=model, data=data)["loss"]
        words = ["--checkpoint", self.path("run"), "--out", self.path("apart")]
        self.error("export", fixture(model), *words, "--apart", names=["not recognised", "activations=exact"])
        self.error("export", fixture(model), *words, *exact, names=["quantised", "--apart"])
        self.error("export", fixture(model), *words, "--apart", "--option", "page_tokens=16", status=2, names=["page_tokens"])
        self.call("export", fixture(model), *words, "--apart", *exact)
        for adapter in (answer["files"]["adapter"], self.path("apart")):
            got = self.evaluate("--adapter", adapter, "--seq", "32", *exact, model=model, data=data)["loss"]
            self.assertAlmostEqual(got, loss, delta=1e-5 * loss)

    def npy(self, name, count=400):
        draw = random.Random(3)
        npy_files.write(self.path(name), "<i4", [count], [3 + (i * 7 + draw.randrange(3)) % 250 for i in range(count)])
        return self.path(name)

    def test_a_run_that_began_with_another(self):
        """What it leaves fits the model, where it trained all that the other had changed."""
        self.train("first", "--steps", "3")
        second = self.train("second", "--steps", "3", "--checkpoint", self.path("first"), "--eval-data", self.held_out)
        loss = second["evaluations"][-1]["loss"]
        self.assertAlmostEqual(self.evaluate("--checkpoint", self.path("second"))["loss"], loss, delta=1e-4 * loss)
        self.call("export", fixture(MODEL), "--checkpoint", self.path("second"), "--out", self.path("tuned"))
        self.assertAlmostEqual(self.evaluate(model=self.path("tuned"))["loss"], loss, delta=1e-4 * loss)
        # Adapters stand beside the weights that they began with.
        _, err = self.call("train", fixture(MODEL), "--data", self.data, "--out", self.path("third"), "--steps", "1", "--lora",
                           "2", "--checkpoint", self.path("first"))
        self.assertIn(f"--checkpoint {self.path('first')} --out BASE", err)
        self.call("export", fixture(MODEL), "--checkpoint", self.path("first"), "--out", self.path("BASE"))
        self.evaluate("--checkpoint", self.path("third"), model=self.path("BASE"))
        self.error("eval", fixture(MODEL), "--data", self.data, "--checkpoint", self.path("third"),
                   names=["another model", "began with another checkpoint"])

    def test_texts_end_as_the_model_does(self):
        """Where the tokenizer names no end of a text, the model's configuration does."""
        rows = self.lines("ends.jsonl", [{"text": text} for text in texts(4, 8)])
        counted = self.evaluate(data=rows)["targets"]
        model = self.path("model")
        shutil.copytree(fixture(MODEL), model)
        with open(os.path.join(model, "tokenizer_config.json")) as file:
            config = json.load(file)
        del config["eos_token"]
        for configured, less in ((True, 0), (False, 4)):
            with open(os.path.join(model, "tokenizer_config.json"), "w") as file:
                json.dump(config, file)
            with open(os.path.join(model, "generation_config.json"), "w") as file:
                json.dump({"eos_token_id": [2, 5]} if configured else {}, file)
            with open(os.path.join(model, "config.json"), "w") as file:
                file.write("{}")
            self.assertEqual(self.evaluate(data=rows, model=model)["targets"], counted - less)

    def test_progress_fits_the_terminal(self):
        import fcntl
        import pty
        import struct
        import termios
        for columns in (60, 200):
            ours, theirs = pty.openpty()
            fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            process = subprocess.Popen([PLAIT, "train", fixture(MODEL), "--data", self.data, "--out",
                                        self.path(f"wide-{columns}"), "--steps", "4"], stderr=theirs)
            os.close(theirs)
            said = b""
            while True:
                try:
                    some = os.read(ours, 65536)
                except OSError:  # the other end is closed
                    break
                if not some:
                    break
                said += some
            self.assertEqual(process.wait(), 0)
            os.close(ours)
            lines = [line for line in said.decode().replace("\n", "\r").split("\r") if line.startswith("step ")]
            self.assertTrue(lines)
            self.assertLess(max(map(len, lines)), columns)
            self.assertEqual("[" in lines[0], columns == 200)

    def test_formats(self):
        with open(self.path("data.txt"), "w") as file:
            file.write("\n".join(texts(60, 4)))
        chats = [{"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": text[::-1]}]}
                 for text in texts(16, 5)]
        answers = [{"prompt": text, "completion": " and so on"} for text in texts(16, 6)]
        for name, data in (("text", self.path("data.txt")), ("npy", self.npy("data.npy")),
                           ("chats", self.lines("chats.jsonl", chats)),
                           ("answers", self.lines("answers.jsonl", answers))):
            answer = self.train(name, "--steps", "8", "--seq", "64", "--cut-long", data=data)
            self.assertLess(answer["losses"][-1], answer["losses"][0], name)
        # A model without a tokenizer takes ids.
        self.train("ids", "--steps", "1", "--seq", "64", data=self.npy("data.npy"), model="gpt2-optimum18")

    def test_resumed_run_is_the_straight_one(self):
        words = ["--steps", "10", "--save-every", "2"]
        straight = self.train("straight", *words)
        command = [PLAIT, "train", fixture(MODEL), "--data", self.data, "--out", self.path("cut"), "--lr", "3e-3",
                   "--batch", "8", "--threads", "2", *words]
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        deadline = time.time() + HANG_S
        while not os.path.isdir(self.path("cut/checkpoints/step-000002")) and time.time() < deadline:
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=HANG_S)
        if process.returncode == 130:  # it may have been over before
            self.assertIn(b"--resume", err)
        else:
            self.assertEqual(process.returncode, 0, err)
        self.error(*command[1:], names=["holds a run already"])
        rest = self.train("cut", "--resume", *words)
        self.assertEqual(rest["steps"], 10)
        count = len(rest["losses"])
        self.assertEqual(rest["losses"], straight["losses"][10 - count:])
        one, two = (self.evaluate("--checkpoint", self.path(name))["loss"] for name in ("straight", "cut"))
        self.assertEqual(one, two)
        self.error("train", fixture(MODEL), "--data", self.data, "--out", self.path("cut"), "--resume", "--lr", "1",
                   *words, names=["learning rate"])

    def test_a_finished_run_is_made_longer(self):
        self.train("run", "--steps", "4")
        longer = self.train("run", "--steps", "6", "--resume")
        self.assertEqual((longer["steps"], len(longer["losses"])), (6, 2))
        self.error("train", fixture(MODEL), "--data", self.data, "--out", self.path("run"), "--lr", "3e-3", "--batch", "8",
                   "--resume", "--steps", "5", names=["has done 6 steps", "(--steps)"])
        _, err = self.call("train", fixture(MODEL), "--data", self.data, "--out", self.path("short"), "--steps", "2", "--warmup", "9")
        self.assertRegex(err, "warning: .*warmup is 9, and the run has 2 steps")

    def test_sigterm_leaves_a_checkpoint(self):
        """Also if it comes twice at once: by the process' id, and by its group's, as timeout sends it."""
        process = subprocess.Popen([PLAIT, "train", fixture(MODEL), "--data", self.data, "--out", self.path("run"), "--steps",
                                    "1000000", "--save-every", "5"], stderr=subprocess.DEVNULL)
        deadline = time.time() + HANG_S
        while not os.path.isdir(self.path("run/checkpoints/step-000005")) and time.time() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=HANG_S), 130)
        last = sorted(os.listdir(self.path("run/checkpoints")))[-1]
        self.assertGreaterEqual(self.train("run", "--resume", "--steps", str(int(last[5:]) + 1), rate="1e-4")["steps"], 6)

    def test_bad_input(self):
        run = ["--out", self.path("bad")]
        broken = self.path("broken.jsonl")
        with open(broken, "w") as file:
            file.write('{"text": "fine"}\n{"text": "fine"}\n{"text": \n')
        self.error("train", fixture(MODEL), *run, "--data", broken, names=["broken.jsonl", "line 3"])
        self.error("train", fixture(MODEL), *run, "--data", self.lines("empty.jsonl", []), names=["empty.jsonl"])
        self.error("train", fixture(MODEL), *run, "--data", self.path("none.jsonl"), names=["none.jsonl"])
        long = self.lines("long.jsonl", [{"text": " ".join(texts(10, 7))}])
        self.error("train", fixture(MODEL), *run, "--data", long, "--seq", "16", names=["line 1", "16", "(--seq", "(--cut-long)"])
        with open(self.path("list.json"), "w") as file:
            json.dump([{"text": "fine"}], file)
        self.error("train", fixture(MODEL), *run, "--data", self.path("list.json"), names=["list.json", "one JSON object a line"])
        self.error("train", fixture(MODEL), *run, "--data", self.data, "--train", "nope*",
                   names=['"nope*"', "names of weights are", "q_proj.weight"])
        self.error("train", fixture("zoo/qwen3/q_int4"), *run, "--data", self.npy("ids.npy"), "--train", "*q_proj*",
                   names=["no float weight", "*q_proj*"])
        self.error("train", fixture(MODEL), *run, "--data", self.data, "--seq", "4096", names=["context"])
        self.error("train", fixture("gpt2-optimum18"), *run, "--data", self.data, names=["tokenizer"])
        self.error("train", fixture(MODEL), *run, "--data", self.data, "--optimizer", "magic", status=2,
                   names=["adamw"])
        self.error("train", fixture(MODEL), "--data", self.data, status=2, names=["--out"])
        foreign = self.path("foreign.npy")
        npy_files.write(foreign, "<i4", [3], [3, 4, 5000])
        self.error("train", fixture(MODEL), *run, "--data", foreign, names=["foreign.npy", "token 5000"])
        # What would do nothing, or make numbers that are none.
        for words in (["--lora-targets", "query"], ["--lora-dropout", "0.1"], ["--lora", "2", "--train", "*"],
                      ["--patience", "2"], ["--momentum", "0.5"], ["--optimizer", "sgd", "--beta1", "0.5"]):
            self.error("train", fixture(MODEL), *run, "--data", self.data, *words, names=["has no effect here"])
        for words in (["--beta1", "1"], ["--beta2", "1"], ["--epsilon", "0"]):
            self.error("train", fixture(MODEL), *run, "--data", self.data, *words, status=2, names=["expected number"])
        self.assertFalse(os.path.exists(self.path("bad")))
        # A loss that is no number: the step is named, and the checkpoint before stays.
        _, err = self.call("train", fixture(MODEL), "--data", self.data, "--out", self.path("nan"), "--lr", "1e6",
                           "--clip", "0", "--optimizer", "sgd", "--save-every", "1", "--steps", "50",
                           "--schedule", "constant", status=1)
        self.assertRegex(err.splitlines()[-1], r"plait: error: step \d+: the .* is (NaN|infinite)")
        self.assertTrue(os.listdir(self.path("nan/checkpoints")))

    # Opening a pipe for reading waits for a writer, if one does not take care.
    def test_data_that_are_no_file(self):
        os.mkfifo(self.path("pipe.jsonl"))
        for data in (self.path("pipe.jsonl"), "/dev/zero", self.folder):
            self.error("train", fixture(MODEL), "--data", data, "--out", self.path("run"), names=("not a regular file",))
            self.error("eval", fixture(MODEL), "--data", data, names=("not a regular file",))

    def test_plan(self):
        words = ("train", fixture(MODEL), "--lora", "4", "--mesh", "data=2", "--zero", "1", "--plan")
        text = self.call(*words)[0]
        for part in ("memory of rank 0", "optimizer", "micro_batch", "all_reduce", "q_proj.lora_A.weight"):
            self.assertIn(part, text)
        plan = json.loads(self.call(*words, "--json")[0])
        self.assertEqual((plan["mesh"], plan["ranks"], plan["zero"]), ("data=2", 2, 1))
        totals = plan["totals"]
        self.assertEqual(totals["trained_parameters"], sum(one["elements"] for one in plan["trained"]))
        self.assertEqual(totals["rank_trained_bytes"], sum(one["rank_bytes"] for one in plan["trained"]))
        self.assertEqual(os.listdir(self.folder), sorted(["data.jsonl", "held-out.jsonl"]), "nothing is written")
        # What the run then takes is what the plan has, and what kernels need for themselves.
        one = json.loads(self.call("train", fixture(MODEL), "--seq", "16", "--plan", "--json")[0])["totals"]
        run = json.loads(self.call("train", fixture(MODEL), "--seq", "16", "--data", self.data, "--steps", "1", "--cut-long",
                                   "--out", self.path("run"), "--json")[0])
        self.assertGreaterEqual(run["native_bytes"], one["rank_bytes"])
        self.assertLess(run["native_bytes"], one["rank_bytes"] + 2 * one["rank_arena_bytes"])
        self.error("train", fixture(MODEL), "--out", self.path("run"), status=2, names=("--data",))

    def test_wrong_checkpoints(self):
        answer = self.train("run", "--steps", "1")
        self.error("eval", fixture("llama-standard23"), "--data", self.npy("ids.npy"), "--checkpoint",
                   answer["files"]["checkpoint"], names=["model"])
        self.error("eval", fixture(MODEL), "--data", self.data, "--checkpoint", self.folder, names=["checkpoint"])
        self.error("export", fixture(MODEL), "--adapter", self.folder, "--out", self.path("x"), names=["adapter_config"])
        self.error("export", fixture(MODEL), "--adapter", "a", "--checkpoint", "b", "--out", self.path("x"), status=2)
        shard = os.path.join(answer["files"]["checkpoint"], "shard-00000-of-00001.safetensors")
        with open(shard, "r+b") as file:
            for place in range(20000, os.path.getsize(shard), 1000):
                file.seek(place)
                file.write(b"\x55\xaa")
        self.error("export", fixture(MODEL), "--checkpoint", answer["files"]["checkpoint"], "--out", self.path("x"),
                   names=["shard-00000"])

    def test_mesh(self):
        alone = self.train("alone", "--steps", "3", "--optimizer", "sgd")
        for mesh in (["--mesh", "data=2", "--zero", "3"], ["--mesh", "tensor=2"]):
            spread = self.train("-".join(mesh), "--steps", "3", "--optimizer", "sgd", *mesh)
            for a, b in zip(alone["losses"], spread["losses"]):
                self.assertAlmostEqual(a, b, delta=1e-4 * a)

    def test_pipeline(self):
        run = ("--steps", "3", "--optimizer", "sgd", "--micro-batches", "4", "--pipeline")
        one_rank = self.train("one-rank", "--steps", "3", "--optimizer", "sgd")
        lists = self.path("1f1b.txt")
        with open(lists, "w") as file:
            file.write("stages 2 micro-batches 4 seats 0 1  # two ranks\n0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3\n"
                       "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3\n")
        ways = {"3d": (*run, "1f1b", "--mesh", "data=2,pipeline=2,tensor=2", "--zero", "1"),
                "split": (*run, "zb-h1", "--mesh", "pipeline=2", "--stages", "1,2"),
                "stages": (*run, "interleaved:2"),
                "lists": ("--steps", "3", "--optimizer", "sgd", "--pipeline", lists, "--mesh", "pipeline=2")}
        for name, words in ways.items():
            for a, b in zip(one_rank["losses"], self.train(name, *words)["losses"]):
                self.assertAlmostEqual(a, b, delta=1e-4 * a, msg=name)
        # A run's timeline has the plan's form: a row a rank, the first one busy first.
        two = ("--steps", "2", "--mesh", "pipeline=2", "--seq", "64", "--micro-batch", "64", "--pipeline", "gpipe")
        self.train("drawn", *two, "--trace", self.path("timeline.txt"))
        with open(self.path("timeline.txt")) as file:
            caption, first, second = file.read().splitlines()
        self.assertRegex(caption, r"^step 2: \d+\.\d+ s, bubble \d+\.\d %$")
        self.assertRegex(first, r"^0 \|0[0-7.]+[A-H.]*\|$")
        self.assertRegex(second, r"^1 \|\.+[0-7.]+[A-H.]+\|$")
        self.train("picture", *two, "--trace", self.path("timeline.svg"))
        with open(self.path("timeline.svg")) as file:
            self.assertEqual(file.read().count("<title>"), 2 * 8 * 2)  # stages, micro-batches, forward and backward
        # A run continues on another mesh, with another schedule.
        more = ("--steps", "5", "--optimizer", "sgd", "--schedule", "constant", "--resume")
        self.train("far", "--steps", "3", "--optimizer", "sgd", "--schedule", "constant", "--mesh", "pipeline=2",
                   "--micro-batches", "4", "--pipeline", "gpipe")
        self.assertEqual(len(self.train("far", *more, "--micro-batches", "4", "--pipeline", "zb-h1",
                                        "--mesh", "tensor=2,pipeline=2")["losses"]), 2)

    def test_pipeline_plan(self):
        words = ("train", fixture(MODEL), "--mesh", "data=2,pipeline=2,tensor=2", "--zero", "1", "--seq", "8",
                 "--micro-batch", "8", "--batch", "16", "--micro-batches", "8", "--plan")
        text = self.call(*words)[0]
        for part in ("pipeline: 1f1b, 8 micro-batches", "after 0F to 1", "after 1B to 0", "bubble", "SLOTS F-I"):
            self.assertIn(part, text)
        plan = json.loads(self.call(*words, "--json")[0])
        pipeline = plan["pipeline"]
        stages, ranks = pipeline["stages"], pipeline["ranks"]
        self.assertEqual((pipeline["schedule"], pipeline["micro_batches"], len(stages), len(ranks)), ("1f1b", 8, 2, 2))
        self.assertEqual([one["stages"] for one in ranks], [[0], [1]])
        # 1F1B: the first rank keeps two micro-batches, the last one.
        self.assertEqual([one["slots"]["forward_to_input"]["sets"] for one in ranks], [2, 1])
        for one in ranks:
            self.assertEqual(one["slot_bytes"], sum(pool["bytes"] for pool in one["slots"].values()))
            self.assertEqual(one["rank_bytes"], one["held_bytes"] + one["arena_bytes"] + one["slot_bytes"] + one["version_bytes"])
        self.assertGreaterEqual(sum(one["trained_parameters"] for one in stages), plan["totals"]["trained_parameters"])
        self.assertTrue(0 < pipeline["bubble"] < 1 and all("." in line for line in pipeline["timeline"][:2]))
        # Twice the micro-batches have a smaller bubble, zero bubble a smaller one still.
        less = json.loads(self.call(*words[:-4], "8", "--micro-batches", "4", "--plan", "--json")[0])["pipeline"]["bubble"]
        zero = json.loads(self.call(*words, "--pipeline", "zb-h1", "--json")[0])["pipeline"]
        self.assertTrue(zero["bubble"] < pipeline["bubble"] < less, (zero["bubble"], pipeline["bubble"], less))
        self.assertGreater(zero["ranks"][0]["slots"]["input_to_weight"]["bytes"], 0)
        # Versions of asynchronous schedules are held in addition: of the first stage of two, one more.
        old = json.loads(self.call(*words, "--pipeline", "pipedream", "--json")[0])["pipeline"]
        self.assertEqual([one["versions"] for one in old["stages"]], [2, 1])
        self.assertEqual([one["version_bytes"] > 0 for one in old["ranks"]], [True, False])
        self.assertNotIn("pipeline", json.loads(self.call("train", fixture(MODEL), "--plan", "--json")[0]))

    def test_pipeline_plan_by_inspect(self):
        mesh = ("--mesh", "pipeline=2,tensor=2")
        page, other = self.path("plan.html"), self.path("other.html")
        inspected = self.call("inspect", fixture(MODEL), *mesh, "--option", "pipeline=zb-h1", "--html", page)[0]
        self.assertEqual(inspected, self.call("train", fixture(MODEL), *mesh, "--pipeline", "zb-h1", "--plan", "--html", other)[0])
        with open(page) as one, open(other) as same:
            text = one.read()
            self.assertEqual(text, same.read())
        for part in ("Stages, and what crosses", "after 0F to 1", "<svg", "<title>1I0 rank 1", "Programs of rank 0"):
            self.assertIn(part, text)
        self.error("train", fixture(MODEL), "--data", self.data, "--out", self.path("x"), "--html", page, status=2, names=("plan",))

    def test_wrong_pipelines(self):
        for name, lists in (("missing", "stages 2 micro-batches 1 seats 0 1\n0F0 0B0\n1F0\n"),
                            ("word", "stages 2 micro-batches 1 seats 0 1\n0F0 0X0\n1F0 1B0\n"),
                            ("fine", "stages 2 micro-batches 1 seats 0 1\n0F0 0B0\n1F0 1B0\n"),
                            ("updates", "stages 2 micro-batches 1 seats 0 1\n0F0 0B0 0U0\n1F0 1B0 1U0\n")):
            with open(self.path(name), "w") as file:
                file.write(lists)
        two = ("--mesh", "pipeline=2")
        for words, names in (
                ((*two, "--pipeline", "2f2b"), ("2f2b", "1f1b", "interleaved:N")),
                ((*two, "--pipeline", self.path("missing")), ("missing", "1B0")),
                ((*two, "--pipeline", self.path("word")), ("word", "line 2", "0X0")),
                ((*two, "--pipeline", self.path("updates")), ("lists with updates", "pipedream")),
                ((*two, "--pipeline", self.path("fine"), "--micro-batches", "4"), ("--micro-batches", "no effect")),
                (("--mesh", "pipeline=4", "--pipeline", self.path("fine")), ("2 ranks", "has 4")),
                (("--mesh", "pipeline=64"), ("64 stages", "fewer pipeline ranks")),
                ((*two, "--stages", "1,99"), ("1,99", "100", "add up")),
                ((*two, "--stages", "1,1,1"), ("1,1,1", "3 stages", "give 2")),
                ((*two, "--stages", "a,b"), ("not a number of layers", "such as 9,9")),
                ((*two, "--seats", "3:1"), ("seat on rank 2 of 2",)),
                ((*two, "--pipeline", "zb-v", "--seats", "1:1"), ("zb-v", "several seats")),
                (("--pipeline", "gpipe"), ("pipeline", "no effect", "pipeline=2")),
                ((*two, "--flush-every", "4"), ("--flush-every", "synchronous")),
                (("--mesh", "data=2", "--stages", "auto"), ("stages", "no effect")),
                (("--seats", "1:1"), ("seats", "no effect")),
                (("--micro-batches", "4"), ("--micro-batches", "no effect")),
                (("--mesh", "pipeline=2,pipeline=2"), ("pipeline",))):
            self.error("train", fixture(MODEL), "--plan", *words, names=names)
        many = ("--mesh", "pipeline=64")
        self.error("generate", fixture(MODEL), "--ids", "1", *many, names=("64 stages", "fewer pipeline ranks"))

    def test_lists_that_steps_do_not_fit(self):
        with open(self.path("two"), "w") as file:
            file.write("stages 2 micro-batches 2 seats 0 1\n0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n")
        words = ("train", fixture(MODEL), "--data", self.data, "--mesh", "pipeline=2", "--pipeline", self.path("two"),
                 "--steps", "1", "--seq", "64", "--out", self.path("lists"))
        self.error(*words, "--batch", "1", names=("2 micro-batches", "a step of 1 samples", "at least 2"))
        self.error(*words, "--batch", "8", "--micro-batch", "64", names=("2 micro-batches", "8 samples", "not 64", "--micro-batch"))
        self.assertFalse(os.path.exists(self.path("lists/checkpoints")))
        losses = [self.train("fits", *words[4:-2], "--micro-batch", "256")["losses"],
                  self.train("named", "--mesh", "pipeline=2", "--pipeline", "gpipe", "--steps", "1", "--seq", "64",
                             "--micro-batch", "256", "--micro-batches", "2")["losses"]]
        self.assertEqual(*losses)

    def test_help_lists_every_option(self):
        out, _ = self.call("train", "--help")
        for row in json.loads(self.call("options", "--json")[0]):
            if "trainer" in row["for"]:
                self.assertIn("--" + row["key"].replace("_", "-"), out)

    def test_sample(self):
        done = subprocess.run([SAMPLE, fixture(MODEL), self.path("sample")], capture_output=True, timeout=HANG_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.decode().splitlines()
        self.assertEqual([line.split(":")[0] for line in lines], ["step 1", "step 2", "step 3"])
        self.assertLess(float(lines[1].split()[-1]), float(lines[0].split()[-1]))
        self.assertTrue(os.path.exists(self.path("sample/model.onnx")))


if __name__ == "__main__":
    PLAIT, FIXTURES, SAMPLE = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1])
