"""The command line: its forms, its answers, its errors.

usage: cli_test.py PLAIT FIXTURES SAMPLE, where SAMPLE is samples/c/stream.c, built
"""
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import command_line
import npy_files
from limits import HANG_S

PLAIT = FIXTURES = SAMPLE = None
PROMPT = "323,352,460,299,398,428,121"
GREEDY = GPT2_GREEDY = None  # what that prompt gives, by the manifest


def fixture(name):
    return os.path.join(FIXTURES, name)


# x negated 2^62 times: Loop over a body of Neg.
ENDLESS = base64.b64decode(
    "CAo60AEKmQEKAW4KAXQKAXgSAXkaBXR1cm5zIgRMb29wKn4KBGJvZHkycwoPCgF2EgF3GgAiA05lZzoAChQKAWMSAWQaACIISWRl"
    "bnRpdHk6ABIBYloLCgFpEgYKBAgHEgBaCwoBYxIGCgQICRIAWg8KAXYSCgoICAESBAoCCAFiCwoBZBIGCgQICRIAYg8KAXcSCgoI"
    "CAESBAoCCAGgAQUSAWcqDxAHQgFuSggAAAAAAAAAQCoIEAlCAXRKAQFaDwoBeBIKCggIARIECgIIAWIDCgF5QgQKABAXQhEKDWNv"
    "bS5taWNyb3NvZnQQAQ==")


class CommandLine(command_line.CommandLine):
    def generate(self, model, *words, **more):
        out, _ = self.call("generate", fixture(model), "--json", "--ignore-eos", *words, **more)
        return json.loads(out)

    def test_doctor(self):
        out, _ = self.call("doctor")
        for word in ("processor", "memory", "MPI", "CUDA", "used"):
            self.assertRegex(out, rf"(?m)^{word}  +\S")
        system = json.loads(self.call("doctor", "--json")[0])
        sets = system["processor"]["instruction_sets"]
        limit = os.environ.get("PLAIT_ISA")  # in bindings.cli_test_avx2
        used = limit if limit in (*sets, "reference") else sets[-1] if sets else "reference"
        self.assertEqual(system["processor"]["used"], used)
        self.assertEqual(system["processor"]["usable"], len(os.sched_getaffinity(0)))
        self.assertGreater(system["memory"]["bytes"], system["memory"]["free_bytes"])
        out, _ = self.call("doctor", env={"PLAIT_ISA": "reference"})
        self.assertIn("kernels for reference, which are slow", out)
        absent = self.file("absent.so")
        out, _ = self.call("doctor", "--option", f"mpi_plugin={absent}", "--option", f"cuda_plugin={absent}")
        self.assertEqual(out.count("no: the"), 2)
        self.assertEqual(out.count("hint: "), 2)
        self.error("doctor", "--option", "data=x", names=["data"])

    def test_generation_over_stages(self):
        words = ["gemma3-standard23", "--ids", PROMPT, "--temperature", "0", "-n", str(len(GREEDY))]
        for mesh in (["pipeline=2"], ["pipeline=2,tensor=2"], ["data=2,pipeline=2"], ["pipeline=3", "--stages", "1,1,1"],
                     ["pipeline=2", "--rank-memory", "1.5G,1G"], ["pipeline=2", "--rank-memory", "2G"]):
            self.assertEqual(self.generate(*words, "--mesh", *mesh)["ids"], GREEDY, mesh)
        ranks = self.generate(*words, "--mesh", "pipeline=3", "--stages", "1,1,1")["timings"]["ranks"]
        self.assertLess(ranks[1]["weight_bytes"], ranks[0]["weight_bytes"])  # neither table nor head
        model = fixture("gemma3-standard23")
        refused = ["generate", model, "--ids", PROMPT, "--mesh", "pipeline=2"]
        self.error(*refused, "--rank-memory", "1M,1M", names=["no cut into pipeline stages fits", "stage 0 takes", "stage 1 takes"])
        self.error(*refused, "--rank-memory", "1G,1G,1G", names=["3 numbers", "2 ranks along pipeline"])
        self.error(*refused, "--rank-memory", "1X", names=["\"1X\" is not a number of bytes"])
        self.error(*refused, "--stages", "2,2", names=["4 layers", "the model 3"])
        self.error("generate", model, "--ids", PROMPT, "--rank-memory", "1G", names=["no effect", "no pipeline ranks"])

    def test_version_and_help(self):
        self.assertRegex(self.call("--version")[0], r"^plait \d+\.\d+\.\d+\n$")
        out, _ = self.call("--help")
        for word in ("generate", "logits", "run", "inspect", "export", "tokenize", "ops", "Exit status", "Examples"):
            self.assertIn(word, out)
        self.assertIn("--temperature", self.call("generate", "--help")[0])

    def test_mistakes(self):
        model = fixture("gemma3-standard23")
        for words, names in (
                (["chta"], ["no command \"chta\"", "plait --help"]),
                (["genrate", model], ["no command \"genrate\"", "did you mean generate?"]),
                ([], ["a command is missing"]),
                (["generate", model, "-p", "a", "--top_k", "5"], ["has no option --top_k", "did you mean --top-k?"]),
                (["generate", model, "-p", "a", "--temprature=1"], ["has no option --temprature", "did you mean --temperature?"]),
                (["generate", model, "-p", "a", "b"], ["no place for \"b\""]),
                (["generate", model], ["one of --prompt, --file and --ids"]),
                (["generate", model, "-p", "a", "--ids", "1"], ["only one of --prompt, --file and --ids"]),
                (["generate", model, "-p", "a", "--adapter", "x", "--adapter", "y"], ["--adapter is given more than once"])):
            self.error(*words, names=names, status=2)
        # Options of the library have their flags' names, or those that --option takes.
        self.error("generate", model, "-p", "a", "--min-p", "2", names=["--min-p is \"2\""], status=2)
        self.error("generate", model, "-p", "a", "--option", "step_tokens=0", names=["option step_tokens"], status=2)
        # Each of several processes would answer.
        self.error("generate", model, "-p", "a", names=["2 processes", "--mesh data=2"], status=2,
                   env={"OMPI_COMM_WORLD_SIZE": "2"})

    def test_files_of_other_formats(self):
        """Weights without a graph: what to do with them."""
        for name, begin in (("model.safetensors", b"\x02" + bytes(7) + b"{}"), ("pytorch_model.bin", b"PK\x03\x04" + bytes(20))):
            path = self.file(name)
            with open(path, "wb") as file:
                file.write(begin)
            self.error("generate", path, "-p", "a", names=[name, "no ONNX graph", "optimum-cli export onnx"])
        path = self.file("model.gguf")
        with open(path, "wb") as file:
            file.write(b"GGUF\x03" + bytes(19))
        self.error("generate", path, "-p", "a", names=[path, "general.architecture"])
        with open(path, "wb") as file:
            file.write(b"GGUF\x03" + bytes(7) + b"\x01")
        self.error("generate", path, "-p", "a", names=[path, "damaged GGUF file", "byte"])
        self.error("generate", self.folder, "-p", "a", names=[path, "damaged GGUF file"])  # a directory's only one is opened
        shutil.copy(path, self.file("other.gguf"))
        self.error("generate", self.folder, "-p", "a", names=["several GGUF files", "model.gguf", "other.gguf"])
        os.remove(path), os.remove(self.file("other.gguf"))
        self.error("generate", self.folder, "-p", "a", names=["no .onnx file", "only weights such as", "optimum-cli"])
        shutil.copy(fixture("gpt2-optimum18/model.onnx"), self.file("graph.bin"))  # a graph by another name
        self.call("generate", self.file("graph.bin"), "--ids", PROMPT, "-n", "1")

    def test_samples_as_text(self):
        words = ["generate", fixture("gemma3-standard23"), "-p", "the river", "-n", "4", "--temperature", "2", "--seed", "3"]
        out = self.call(*words, "--samples", "3")[0]
        texts = [one["text"] for one in json.loads(self.call(*words, "--samples", "3", "--json")[0])["samples"]]
        self.assertEqual(out, texts[0] + "\n" + "".join(f"\n--- sample {i + 2}\n{text}\n" for i, text in enumerate(texts[1:])))
        self.error(*words, "--logprobs", "1", names=["--json"], status=2)

    def test_completion(self):
        """Scripts that complete commands, and the options of each."""
        script = self.file("plait.bash", self.call("completion", "bash")[0])
        def completed(*words):
            ask = (f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
                   f"_plait plait '{words[-1]}' ''; echo \"${{COMPREPLY[@]}}\"")
            return subprocess.run(["bash", "-c", ask], capture_output=True, check=True).stdout.decode().split()
        self.assertEqual(completed("plait", "gen"), ["generate"])
        self.assertEqual(set(completed("plait", "generate", "DIR", "--temp")), {"--temperature"})
        self.assertIn("--lora", completed("plait", "train", "--lo"))
        self.assertEqual(completed("plait", "generate", "mod"), [])  # files, by the shell
        self.assertIn("-n '__fish_seen_subcommand_from generate' -l temperature -r", self.call("completion", "fish")[0])
        self.assertIn("bashcompinit", self.call("completion", "zsh")[0])
        self.error("completion", "tcsh", names=["tcsh", "bash, zsh or fish"], status=2)

    def test_short_options(self):
        words = ["--temperature", "0", "--json"]
        long, _ = self.call("generate", fixture("gemma3-standard23"), "--prompt", "the river", "--max-tokens", "5",
                            "--threads", "1", *words)
        short, _ = self.call("generate", "-m", fixture("gemma3-standard23"), "-p", "the river", "-n", "99", "-n", "5", "-t", "1",
                             *words)
        self.assertEqual(json.loads(long)["ids"], json.loads(short)["ids"])

    def test_ids(self):
        words = ["--ids", PROMPT, "--max-tokens", "16", "--temperature", "0"]
        answer = self.generate("gemma3-standard23", *words)
        self.assertEqual(answer["ids"], GREEDY)
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual(answer["usage"]["prompt_tokens"], 7)
        self.assertEqual(answer["usage"]["new_tokens"], 16)
        self.assertGreater(answer["timings"]["decode_tokens_per_s"], 0)
        self.assertGreater(answer["timings"]["peak_memory_bytes"], 1e6)
        # The same text as an engine with the tokenizer makes, and as decoding all at once.
        with_tokenizer = self.generate("gemma3-standard23", *words, "--stop", "no such text at all")
        self.assertEqual(answer["text"], with_tokenizer["text"])
        decoded, _ = self.call("tokenize", fixture("gemma3-standard23"), "--decode", stdin=",".join(map(str, GREEDY)))
        self.assertEqual(answer["text"].strip(), decoded.strip())
        # Without a tokenizer: the ids themselves.
        out, err = self.call("generate", fixture("gpt2-optimum18"), "--ids", PROMPT, "--temperature", "0",
                             "--max-tokens", "4")
        self.assertEqual(out, "365,157,16,16\n")
        for word in ("prefill", "decode", "tokens/s", "time to first token", "peak memory"):
            self.assertIn(word, err)
        self.error("generate", fixture("gpt2-optimum18"), "--prompt", "hello", names=["tokenizer"])

    def test_text(self):
        words = ["--temperature", "0", "--max-tokens", "12"]
        ids, _ = self.call("tokenize", fixture("gemma3-standard23"), stdin="the river")
        by_text = self.generate("gemma3-standard23", "--prompt", "the river", *words)
        by_ids = self.generate("gemma3-standard23", "--ids", ids.strip(), *words)
        by_file = self.generate("gemma3-standard23", "--file", self.file("prompt.txt", "the river"), *words)
        by_stdin = self.generate("gemma3-standard23", "--file", "-", *words, stdin="the river")
        for answer in (by_ids, by_file, by_stdin):
            self.assertEqual((answer["ids"], answer["text"]), (by_text["ids"], by_text["text"]))
        out, _ = self.call("generate", fixture("gemma3-standard23"), "--prompt", "the river", "--ignore-eos", *words)
        self.assertEqual(out, by_text["text"] + "\n")
        chat = self.generate("gemma3-standard23", "--prompt", "the river", "--chat", *words)
        self.assertGreater(chat["usage"]["prompt_tokens"], by_text["usage"]["prompt_tokens"])
        # A stop text ends the output before it.
        middle = by_text["text"][2:5]
        stopped = self.generate("gemma3-standard23", "--prompt", "the river", "--stop", middle, *words)
        self.assertEqual(stopped["finish_reason"], "stop")
        self.assertEqual(stopped["text"], by_text["text"][:by_text["text"].index(middle)])

    def test_sampling(self):
        words = ["--ids", PROMPT, "--max-tokens", "12", "--temperature", "2", "--top-k", "50", "--top-p", "0.95"]
        one = self.generate("gemma3-standard23", *words, "--seed", "5")
        again = self.generate("gemma3-standard23", *words, "--seed", "5", "--threads", "1")
        self.assertEqual(one["ids"], again["ids"])
        self.assertNotEqual(one["ids"], self.generate("gemma3-standard23", *words, "--seed", "6")["ids"])
        self.assertEqual(one["usage"]["seed"], 5)
        drawn = self.generate("gemma3-standard23", *words)
        again = self.generate("gemma3-standard23", *words, "--seed", str(drawn["usage"]["seed"]))
        self.assertEqual(drawn["ids"], again["ids"])
        several = self.generate("gemma3-standard23", *words, "--option", "samples=3", "--option", "logprobs=1")
        self.assertEqual(len(several["samples"]), 3)
        self.assertEqual(len(several["logprobs"]), 12)
        for dtype in ("f32", "bf16"):
            answer = self.generate("gemma3-standard23", "--ids", PROMPT, "--dtype", dtype, "--temperature", "0")
            self.assertEqual(len(answer["ids"]), 256)

    def test_generation_config(self):
        """A model's sampling defaults and its end tokens count unless they are overridden."""
        model = self.file("model")
        shutil.copytree(fixture("gemma3-standard23"), model)
        def answer(config, *words):
            with open(os.path.join(model, "generation_config.json"), "w") as file:
                json.dump(config, file)
            out, _ = self.call("generate", model, "--json", "--ids", PROMPT, "--max-tokens", "16", *words)
            return json.loads(out)
        self.assertEqual(answer({})["ids"], GREEDY)
        self.assertEqual(answer({"do_sample": False, "temperature": 2.0})["ids"], GREEDY)
        self.assertNotEqual(answer({"do_sample": True, "temperature": 3.0}, "--seed", "1")["ids"], GREEDY)
        self.assertEqual(answer({"do_sample": True, "temperature": 3.0}, "--temperature", "0")["ids"], GREEDY)
        stopped = answer({"eos_token_id": [89, 7]})
        self.assertEqual((stopped["ids"], stopped["finish_reason"]), (GREEDY[:2], "eos"))
        self.assertEqual(answer({"eos_token_id": 89}, "--ignore-eos")["ids"], GREEDY)
        self.error("generate", self.broken(model, "generation_config.json", '{"eos_token_id": "x"}'), "--ids", "1",
                   names=["generation_config.json", "eos_token_id"])
        self.error("generate", self.broken(model, "config.json", "{"), "--ids", "1", names=["config.json", "JSON"])

    def broken(self, model, name, text):
        with open(os.path.join(model, name), "w") as file:
            file.write(text)
        return model

    def test_model_choice(self):
        """Which file of a directory is the model."""
        source = fixture("gpt2-optimum18/model.onnx")
        shutil.copy(source, self.file("b.onnx"))
        words = ["--ids", PROMPT, "--temperature", "0", "--max-tokens", "2"]
        self.call("generate", self.folder, *words)
        shutil.copy(source, self.file("a.onnx"))
        self.error("generate", self.folder, *words, names=["a.onnx, b.onnx"])
        self.call("generate", self.file("a.onnx"), *words)
        self.file("decoder_model.onnx", "no model")
        shutil.copy(source, self.file("decoder_with_past_model.onnx"))
        self.call("generate", self.folder, *words)
        self.file("decoder_model_merged.onnx", "no model")
        self.error("generate", self.folder, *words, names=["decoder_model_merged.onnx"])
        shutil.copy(source, self.file("model.onnx"))
        self.call("generate", self.folder, *words)
        self.file("genai_config.json", '{"model": {"decoder": {"filename": "decoder_model.onnx"}}}')
        self.error("generate", self.folder, *words, names=["decoder_model.onnx"])
        self.file("genai_config.json", '{"model": {"decoder": {"filename": "gone.onnx"}}}')
        self.error("generate", self.folder, *words, names=["gone.onnx", "genai_config.json"])
        os.mkdir(self.file("empty"))
        self.error("inspect", self.file("empty"), names=["no .onnx file"])

    def test_run(self):
        """One step of a graph with its past, by hand, gives the golden logits."""
        info = json.loads(self.call("inspect", fixture("gpt2-optimum18"), "--json")[0])
        ids = list(map(int, PROMPT.split(",")))
        words = []
        for operand in info["inputs"]:
            name, path = operand["name"], self.file(operand["name"].replace("/", "_") + ".npy")
            if "past" in name:
                npy_files.write(path, "<f4", (1, 4, 0, 16), [])
            else:
                values = {"input_ids": ids, "position_ids": range(7)}.get(name, [1] * 7)
                npy_files.write(path, "<i8", (1, 7), values, version=2, fortran=name == "input_ids")
            words += ["--input", f"{name}={path}"]
        out = self.file("logits.npy")
        self.call("run", fixture("gpt2-optimum18"), *words, "--output", f"logits={out}")
        descr, shape, values = npy_files.read(out)
        _, _, golden = npy_files.read(fixture("goldens/gpt2_7.npy"))
        self.assertEqual((descr, tuple(shape)), ("<f4", (1, 7, 512)))
        self.assertLess(max(abs(a - b) for a, b in zip(values, golden)), 1e-4 * max(map(abs, golden)))
        self.error("run", fixture("gpt2-optimum18"), *words, "--output", f"nothing={out}",
                   names=["nothing", "logits"])
        # An encoder, of two padded texts.
        bert = [word for name in ("input_ids", "attention_mask", "token_type_ids")
                for word in ("--input", f"{name}={fixture(f'zoo/bert/{name}.npy')}")]
        hidden = self.file("hidden.npy")
        times = self.call("run", fixture("zoo/bert/plain.onnx"), *bert, "--output", f"last_hidden_state={hidden}", "--repeat", "3",
                          "--time-limit", "60")[0]
        self.assertRegex(times, r"^median [0-9.]+ ms, least [0-9.]+ ms, of 3 runs\n$")
        _, shape, values = npy_files.read(hidden)
        _, _, golden = npy_files.read(fixture("zoo/bert/last_hidden_state.npy"))
        self.assertEqual(tuple(shape), (2, 11, 32))
        self.assertLess(max(abs(a - b) for a, b in zip(values, golden)), 1e-5 * max(map(abs, golden)))
        self.error("run", fixture("gpt2-optimum18"), *words[2:], "--output", f"logits={out}", names=["missing"])
        self.error("run", fixture("gpt2-optimum18"), "--output", "logits", status=2, names=["NAME=VALUE"])
        short = self.file("short.npy")
        with open(out, "rb") as file:
            cut = file.read()[:-4]
        for content in (b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff", cut, b"x" * 100):
            with open(short, "wb") as file:
                file.write(content)
            self.error("run", fixture("gpt2-optimum18"), "--input", f"input_ids={short}", "--output", f"logits={out}",
                       names=["short.npy"])

    def test_logits(self):
        out = self.file("logits.npy")
        self.call("logits", fixture("gemma3-standard23"), "--ids", PROMPT, "--out", out)
        descr, shape, values = npy_files.read(out)
        self.assertEqual((descr, tuple(shape)), ("<f4", (7, 512)))
        last = list(values[-512:])
        self.assertEqual(last.index(max(last)), GREEDY[0])
        self.error("logits", fixture("gemma3-standard23"), "--ids", "1,600", "--out", out, names=["600", "512"])
        self.error("logits", fixture("gemma3-standard23"), "--ids", "1,x", "--out", out, status=2, names=["1,x"])
        self.error("logits", fixture("gemma3-standard23"), "--ids", "1", "--out", "/no/such/folder/f.npy",
                   names=["f.npy"])

    def test_inspect(self):
        info = json.loads(self.call("inspect", fixture("gemma3-standard23"), "--json")[0])
        self.assertEqual(info["recognised"], True)
        facts = {"layers": 3, "heads": 4, "kv_heads": 1, "head_size": 16, "windows": [8, 8, 0], "hidden": 48,
                 "vocabulary": 512}
        self.assertEqual({key: info[key] for key in facts}, facts)
        self.assertIn("RMSNorm", info["norm"])
        self.assertEqual(info["activation"], "gelu_tanh")
        self.assertEqual(info["cache_bytes_per_token"], 3 * 2 * 16 * 4)
        self.assertGreater(info["parameters"], 512 * 48)
        self.assertEqual(info["weight_bytes"], 4 * info["parameters"])
        text, _ = self.call("inspect", fixture("gemma3-standard23"))
        self.assertIn("a decoder", text)
        self.assertIn("f32[", str(info["outputs"][0]["type"]))
        gpt2 = json.loads(self.call("inspect", fixture("gpt2-optimum18"), "--json")[0])
        self.assertEqual((gpt2["norm"], gpt2["windows"], gpt2["context"]), ("LayerNorm", [0, 0], 64))
        self.assertEqual(sum(one["pattern"].startswith("attention") for one in gpt2["found"]), 2)
        imported = self.call("inspect", fixture("gpt2-optimum18"), "--dump", "import")[0]
        for one in gpt2["found"] + [one for one in gpt2["plain"] if one["node"]]:
            self.assertTrue(f'node "{one["node"]}"' in imported, one)
        raised, _ = self.call("inspect", fixture("gemma3-standard23"), "--dump", "raise")
        self.assertIn("plait.PagedAttention", raised)
        self.assertIn("input_ids", self.call("inspect", fixture("gemma3-standard23"), "--dump", "import")[0])
        self.error("inspect", fixture("gemma3-standard23"), "--dump", "x", names=["raise"])
        page = self.file("model.html")  # without a mesh: of the model
        self.assertEqual(self.call("inspect", fixture("gemma3-standard23"), "--html", page)[0], text)
        with open(page) as file:
            written = file.read()
        for word in ("<!DOCTYPE html>", "layers", "RMSNorm", "gelu_tanh", "input_ids"):
            self.assertIn(word, written)
        # Layers without attention count too, and are told apart.
        hybrid = json.loads(self.call("inspect", fixture("zoo/lfm2/hf5"), "--json")[0])
        self.assertEqual((hybrid["layers"], hybrid["layer_kinds"]), (3, {"attention": 1, "convolution": 2}))
        self.assertRegex(self.call("inspect", fixture("zoo/lfm2/hf5"))[0], r"layers +3: attention 1, convolution 2\n")
        self.assertRegex(text, r"layers +3\n")

    def test_export(self):
        out = self.file("exported")
        self.assertRegex(self.call("export", fixture("gemma3-standard23"), "--out", out)[1], r"wrote \S+: .*model\.onnx \(")
        self.assertEqual(self.generate(out, "--ids", PROMPT, "--max-tokens", "16", "--temperature", "0")["ids"], GREEDY)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            with open(fixture(f"gemma3-standard23/{name}"), "rb") as before, open(f"{out}/{name}", "rb") as after:
                self.assertEqual(after.read(), before.read())
        self.error("export", fixture("gemma3-standard23"), "--out", out, names=["model.onnx", "already"])

    def test_export_of_a_plan(self):
        words = ["--ids", PROMPT, "--max-tokens", "16", "--temperature", "0"]
        out = self.file("planned")
        self.call("export", fixture("gemma3-standard23"), "--out", out, "--mesh", "tensor=2")
        self.assertEqual(json.loads(self.call("inspect", out, "--json")[0])["ir_version"], 11)
        for mesh in ([], ["--mesh", "tensor=2"], ["--mesh", "file"], ["--mesh", "tensor=2", "--seeds", "file"]):
            self.assertEqual(self.generate(out, *words, *mesh)["ids"], GREEDY, mesh)
        self.error("generate", out, *words, "--mesh", "tensor=4", "--seeds", "file",
                   names=["tensor=4", "4 ranks", "2 devices"])
        self.error("generate", fixture("gemma3-standard23"), *words, "--mesh", "file", names=["no annotations"])
        # Stages: cut again as they were, with each weight held by the ranks of its stage.
        staged = self.file("staged")
        self.call("export", fixture("gemma3-standard23"), "--out", staged, "--mesh", "pipeline=2,tensor=2", "--stages", "1,2")
        for mesh in ([], ["--mesh", "file", "--stages", "file", "--seeds", "file"], ["--mesh", "pipeline=2", "--stages", "file"],
                     ["--mesh", "pipeline=2,tensor=2", "--stages", "file", "--seeds", "file"]):
            self.assertEqual(self.generate(staged, *words, *mesh)["ids"], GREEDY, mesh)
        for extra, names in ((["--mesh", "tensor=2", "--stages", "1,2"], ["--stages", "no pipeline ranks"]),
                             (["--mesh", "pipeline=2", "--stages", "1,1"], ["1,1", "2 layers"]),
                             (["--mesh", "pipeline=2", "--option", "rank_memory=1G"], ["rank_memory"])):
            self.error("export", fixture("gemma3-standard23"), "--out", self.file("no"), *extra, names=names)
            self.assertFalse(os.path.exists(self.file("no")), extra)
        by_hand = "llama-annotated23"
        alone = self.generate(by_hand, *words)["ids"]
        for mesh in ("tensor=2", "tensor=4", "file"):
            self.assertEqual(self.generate(by_hand, *words, "--mesh", mesh)["ids"], alone, mesh)
        self.error("export", fixture("zoo/lfm2/hf5"), "--out", self.file("other"), "--mesh", "tensor=two",
                   names=["tensor"])

    def test_quantize(self):
        model, texts, out = fixture("gemma3-standard23"), self.file("texts.jsonl"), self.file("small")
        with open(texts, "w") as file:
            for line in range(8):
                file.write(json.dumps({"text": f"the {line} red foxes and the lazy dog ran over a hill " * 4}) + "\n")
        words = ["--bits", "4", "--block", "16", "--calibration", texts, "--calibration-window", "32", "--json"]
        told = json.loads(self.call("quantize", model, *words, "--asymmetric", "--out", out)[0])
        self.assertGreater(told["perplexity_before"], 1)
        self.assertLess(abs(told["perplexity_after"] / told["perplexity_before"] - 1), 0.5)
        weights = lambda folder: sum(os.path.getsize(f"{folder}/{name}") for name in os.listdir(folder) if "onnx" in name)
        self.assertLess(weights(out), weights(model))
        self.assertEqual(told["files"], {name: os.path.getsize(f"{out}/{name}") for name in os.listdir(out)})
        self.assertEqual(len(self.generate(out, "--ids", PROMPT, "--max-tokens", "4")["ids"]), 4)
        # What cannot be: nothing is written then.
        none = self.file("none.jsonl")
        for words, status, names in ((("--block", "48"), 1, ["--block", "48", "power of two"]),
                                     (("--block", "8"), 2, ["--block", "16"]),
                                     (("--bits", "1"), 1, ["--bits", "2 to 8"]), (("--bits", "9"), 2, ["--bits", "8"]),
                                     (("--head-bits", "1"), 1, ["--head-bits", "2 to 8"]),
                                     (("--calibration", none), 1, [none]), (("--eval-data", none), 1, [none])):
            self.error("quantize", model, *words, "--out", self.file("wrong"), status=status, names=names)
            self.assertFalse(os.path.exists(self.file("wrong")), words)
        self.error("quantize", out, "--out", self.file("wrong"), names=["no float weights"])
        self.error("quantize", fixture("own_loss/regressor"), "--calibration", texts, "--out", self.file("wrong"),
                   names=["not recognised", "token ids"])
        self.error("quantize", model, "--out", out, names=["model.onnx", "already"])

    def test_pass_off(self):
        words = ["--ids", PROMPT, "--max-tokens", "16", "--temperature", "0", "--option", "off=raise"]
        self.assertEqual(self.generate("gemma3-standard23", *words)["ids"], GREEDY)

    def test_tokenize(self):
        with open(fixture("gemma3-standard23/tokenizer_config.json")) as file:
            bos = json.load(file).get("bos_token")
        text = "the sea and \u00e9t\u00e9"
        ids, _ = self.call("tokenize", fixture("gemma3-standard23"), stdin=text)
        plain, _ = self.call("tokenize", fixture("gemma3-standard23"), "--plain", stdin=text)
        self.assertTrue(bos and ids == "1," + plain, (ids, plain))
        decoded, _ = self.call("tokenize", fixture("gemma3-standard23/model.onnx"), "--decode", stdin=ids)
        self.assertEqual(decoded, text + "\n")
        self.assertEqual(self.call("tokenize", fixture("gemma3-standard23"), "--cache-dir", "", stdin=text)[0], ids)
        self.error("tokenize", fixture("gpt2-optimum18"), names=["tokenizer.json"])

    def test_strings_and_lists(self):
        """The graph of scenarios.txt: a sequence from and to a folder, strings from and to .npy files."""
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "scenarios.txt"), encoding="utf-8") as file:
            texts = dict(line.strip().split(" = ", 1) for line in file if line.startswith(("strings.", "optional.")))
        model, x, words, joined, more = (self.file(name) for name in ("s.onnx", "x.npy", "words", "joined.npy", "more"))
        with open(model, "wb") as file:
            file.write(bytes.fromhex("".join(texts[f"strings.model_hex{i}"] for i in range(1, 5))))
        npy_files.write_strings(x, texts["strings.x"].split(","))
        os.makedirs(words, exist_ok=True)
        parts = [part.split(",") for part in texts["strings.words"].split(";")]
        for i, part in enumerate(parts):
            npy_files.write_strings(os.path.join(words, f"{i}.npy"), part)
        run = ["run", model, "--input", f"x={x}", "--input", f"words={words}", "--output", f"joined={joined}"]
        self.call(*run, "--output", f"more={more}")
        result = texts["strings.joined"].split(",")
        self.assertEqual(npy_files.read_strings(joined), result)
        self.assertEqual([npy_files.read_strings(os.path.join(more, f"{i}.npy")) for i in range(len(parts) + 1)], parts + [result])
        self.error("run", model, "--input", f"x={x}", "--input", f"words={x}", "--output", f"joined={joined}", status=2,
                   names=["words", "0.npy"])
        # An optional of a sequence: a folder in a folder; what an earlier run wrote is removed.
        optional, given, again = self.file("optional.onnx"), self.file("given"), self.file("again")
        with open(optional, "wb") as file:
            file.write(bytes.fromhex("".join(texts[f"optional.model_hex{i}"] for i in (1, 2, 3))))
        os.makedirs(given, exist_ok=True)
        for there in (True, False):
            if there:
                shutil.copytree(words, os.path.join(given, "0"))
            else:
                shutil.rmtree(os.path.join(given, "0"))
            self.call("run", optional, "--input", f"given={given}", "--output", f"again={again}")
            self.assertEqual(sorted(os.listdir(again)), ["0"] if there else [])
            if there:
                self.assertEqual([npy_files.read_strings(os.path.join(again, "0", f"{i}.npy")) for i in range(len(parts))], parts)
        # Written as JSON, and from an archive.
        run[3] = "x=" + json.dumps(texts["strings.x"].split(","))
        self.call(*run)
        self.assertEqual(npy_files.read_strings(joined), result)
        self.error(*run[:3], "x=[1, 2]", *run[4:], status=2, names=["x", "1 is no string"])
        archive = self.file("given.npz")
        with zipfile.ZipFile(archive, "w") as file:
            file.write(x, "x.npy")
        for source in (archive, archive + "/x"):
            run[3] = f"x={source}"
            self.call(*run)
            self.assertEqual(npy_files.read_strings(joined), result)
        self.error(*run[:3], f"x={archive}/y", *run[4:], names=["y", '"x"'])
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            file.write(x, "x.npy")
        self.error(*run[:3], f"x={archive}", *run[4:], names=["compressed", "numpy.savez"])
        with open(archive, "rb") as file:
            content = file.read()
        for damaged in (content[:-30], content[:40], b"", content[:-22] + b"\xff" * 22, content[30:]):
            with open(archive, "wb") as file:
                file.write(damaged)
            self.error(*run[:3], f"x={archive}", *run[4:], names=["given.npz"])

    def test_time_limit(self):
        """A run that takes too long ends; what it computes does not matter."""
        model, x, out = self.file("endless.onnx"), self.file("x.npy"), self.file("y.npy")
        with open(model, "wb") as file:
            file.write(ENDLESS)
        npy_files.write(x, "<f4", (1,), [1.0])
        self.error("run", model, "--input", f"x={x}", "--output", f"y={out}", "--time-limit", "0.2",
                   names=["took longer than 0.2 s", "--time-limit"])
        self.error("run", model, "--input", f"x={x}", "--output", f"y={out}", "--time-limit", "-1", names=["--time-limit"])

    def test_ops_and_options(self):
        rows = {row["op"]: row for row in json.loads(self.call("ops", "--json")[0])}
        self.assertGreater(len(rows), 100)
        self.assertEqual(set(rows["MatMul"]) >= {"dims", "gradient", "kernels", "doc"}, True)
        self.assertTrue(any(kernel["isa"] == "reference" for kernel in rows["plait.Linear"]["kernels"]))
        self.assertEqual([rows[op]["gradient"] for op in ("MatMul", "Less", "plait.KvWrite")], ["yes", "zero", None])
        self.assertEqual({op for op, row in rows.items() if not row["kernels"] and not row.get("written_as")},
                         {"If", "Loop", "Scan", "plait.Sizes", "plait.State", "plait.AllReduce", "plait.AllGather",
                          "plait.ReduceScatter", "plait.AllToAll", "plait.Cross", "plait.Shard"})
        self.assertIn("plait.Linear", self.call("ops")[0])
        self.assertIn("cache_bytes", self.call("options")[0])

    def test_log_dir(self):
        words = ["--ids", PROMPT, "--max-tokens", "2", "--temperature", "0"]
        logs = os.path.join(self.folder, "some", "logs")
        expected = self.generate("gemma3-standard23", *words)["ids"]
        self.assertEqual(self.generate("gemma3-standard23", *words, "--log-dir", logs)["ids"], expected)
        names = os.listdir(logs)
        self.assertEqual(len(names), 1)
        self.assertRegex(names[0], r"^plait-\d+\.log$")
        with open(os.path.join(logs, names[0]), encoding="utf-8") as kept:
            self.assertRegex(kept.read(), r"(?m)^20\S+Z debug pass raise: \d+ nodes")
        # A log that cannot be written is no reason to fail.
        no_folder = os.path.join(self.file("a file", "x"), "logs")
        self.assertEqual(self.generate("gemma3-standard23", *words, "--log-dir", no_folder)["ids"], expected)

    def test_usage_errors(self):
        model = fixture("gemma3-standard23")
        self.error(status=2)
        self.error("dance", status=2)
        self.error("generate", model, status=2)
        self.error("generate", model, "--prompt", "a", "--ids", "1", status=2)
        self.error("generate", model, "--ids", "1", "--temperature", "hot", status=2, names=["temperature", "hot"])
        self.error("generate", model, "--ids", "1", "--dtype", "f8", status=2, names=["dtype"])
        self.error("generate", model, "--ids", "1", "--option", "colour=red", status=2, names=["colour"])
        self.error("generate", model, "--ids", "1", "--chat", status=2)
        self.error("generate", "/no/such", "--ids", "1", names=["/no/such", "hint"])
        self.error("generate", model, "--ids", "1,2", "--option", "cache_bytes=1", names=["cache"])
        self.error("generate", model, "--ids", ",".join(["1"] * 600), names=["600", "512"])

    def test_isa(self):
        def ids(isa):
            environment = dict(os.environ, PLAIT_ISA=isa)
            words = [PLAIT, "generate", fixture("gemma3-standard23"), "--ids", PROMPT, "--temperature", "0",
                     "--max-tokens", "16", "--json", "--ignore-eos"]
            done = subprocess.run(words, capture_output=True, env=environment, timeout=HANG_S)
            return done.returncode, done.stdout
        status, out = ids("reference")
        self.assertEqual((status, json.loads(out)["ids"]), (0, GREEDY))
        self.assertEqual(ids("z80"), (1, b""))

    def test_interrupt(self):
        """Ctrl-C ends the answer where it is."""
        words = [PLAIT, "generate", fixture("llama-standard23"), "--ids", PROMPT, "--max-tokens", "100000",
                 "--ignore-eos", "--cache-dir", ""]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANG_S)
        self.assertEqual(process.returncode, 130, err)
        self.assertTrue(first.isdigit() and out.endswith(b"\n"))

    def test_sample(self):
        model = fixture("llama-untied-optimum18")  # it samples nothing
        done = subprocess.run([SAMPLE, model, "the hills"], capture_output=True, timeout=HANG_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.decode(), self.call("generate", model, "--prompt", "the hills", "--max-tokens", "64")[0])
        self.assertEqual(subprocess.run([SAMPLE, "/no/such", "x"], capture_output=True).returncode, 1)


def greedy(name):
    with open(fixture("manifest.json")) as file:
        prompts = next(each["prompts"] for each in json.load(file)["fixtures"] if each["name"] == name)
    return next(each["greedy"] for each in prompts if ",".join(map(str, each["ids"])) == PROMPT)


if __name__ == "__main__":
    PLAIT, FIXTURES, SAMPLE = sys.argv[1:4]
    command_line.CommandLine.plait = PLAIT
    GREEDY, GPT2_GREEDY = greedy("gemma3-standard23"), greedy("gpt2-optimum18")
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
