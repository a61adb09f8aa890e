"""Encoder-decoders continue a text or a sound as ONNX Runtime does, run by run: by themselves, in company of others with other lengths,
with several samples, preempted, and as conversations; through the library and on the command line.

usage: seq2seq_test.py LIBRARY PLAIT FIXTURES

LIBRARY is libplait.so, PLAIT the program. The models of zoo/seq2seq (tests/fixtures/zoo/seq2seq.py) are what optimum's exporter writes
of T5, mT5, BART, Marian and Whisper: merged, as pairs, without a cache, and in a folder onnx; and Whisper of onnxruntime-genai's
builder. ONNX Runtime made the goldens and is not
needed; numpy is, of the environment of get_onnxruntime.sh.
"""
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from ctypes import c_int32, c_int64, c_void_p

from differential_test import ROOT, Plait, Refused, has_onnxruntime
from embeddings_test import EVENT_END, Event
from embeddings_test import Generator as WithRows

sys.path.append(os.path.join(ROOT, "tests", "bindings"))
sys.path.append(os.path.join(ROOT, "tests", "fixtures", "zoo"))
TOKEN_BYTES = 2 * 2 * 32 * 4  # keys and values of two layers of 32 numbers


def files_of(folder):
    out = {}
    for path, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(path, name), "rb") as file:
                out[os.path.relpath(os.path.join(path, name), folder)] = file.read()
    return out


class Generator(WithRows):
    def options(self, tensors=None, **values):
        out = super().options(**values)
        for key, array in (tensors or {}).items():
            tensor = self.plait.tensor(array)
            try:
                self.plait.call("options_set_tensor", out, key.encode(), tensor)
            finally:
                self.plait.call("tensor_release", tensor)
        return out

    def submit(self, ids, tensors=None, parent=None, **values):
        request, options = c_void_p(), self.options(tensors, **{"temperature": 0, "ignore_eos": "true"} | values)
        try:
            self.plait.call("generator_submit_ids", self.handle, (c_int32 * max(len(ids), 1))(*ids), c_int64(len(ids)), options, parent,
                            ctypes.byref(request))
        finally:
            self.plait.call("options_release", options)
        return request

    def tokens(self, *arguments, **values):
        return self.answer(self.submit(*arguments, **values))[0]

    def preempted(self):
        stats = (c_int64 * 64)(64 * 8)
        self.plait.call("generator_statistics", self.handle, stats)
        return stats[4]


class Case:
    def __init__(self, fixtures, name, golden):
        import sounds
        self.name, self.folder = name, os.path.join(fixtures, "zoo", "seq2seq", name)
        self.begin, self.files = golden["begin"], files_of(self.folder)
        self.sound = name.startswith("whisper")
        begin = [] if "config.json" in self.files else self.begin  # genai_config.json does not tell it
        self.given = [({"input_features": sounds.features(one["given"])}, begin) if self.sound else (None, one["given"])
                      for one in golden["prompts"]]
        self.wanted = [one["tokens"] for one in golden["prompts"]]
        self.count = len(self.wanted[0])

    def submit(self, generator, number, **values):
        tensors, ids = self.given[number]
        return generator.submit(ids, tensors, **{"max_tokens": self.count} | values)

    def held(self, number):
        """Bytes that a prompt holds at its end, of encoders' and of decoders' tokens."""
        if self.name == "marian":
            return len(self.given[number][1]) * 24 * 4  # the hidden state
        encoded = 1500 if self.sound else len(self.given[number][1])
        return (encoded + len(self.begin) + self.count) * TOKEN_BYTES


def check_results(plait, case):
    numbers = range(len(case.wanted))
    largest = max(case.held(number) for number in numbers)
    for way, options in {"usual": {"cache_bytes": "16M"}, "little memory": {"cache_bytes": largest}}.items():
        generator = Generator(plait, case.files, **options)
        for number in numbers:
            got = generator.answer(case.submit(generator, number))[0]
            assert got == case.wanted[number], f"{case.name}, {way}, prompt {number}: {got}, expected {case.wanted[number]}"
        running = [case.submit(generator, number) for number in (*numbers, *numbers)]
        got = [generator.answer(one)[0] for one in running]
        assert got == case.wanted * 2, f"{case.name}, {way}, in company: {got}, expected {case.wanted * 2}"
        if way == "usual" or case.name == "marian":
            got = generator.answer(case.submit(generator, 0, samples=3), 3)
            assert got == [case.wanted[0]] * 3, f"{case.name}, {way}, samples: {got}"
        if way == "little memory" and case.name != "marian" and not case.sound:
            assert generator.preempted() > 0, f"{case.name}: nothing was preempted"
        generator.close()


def check_conversation(plait, case):
    """A conversation continues with the encoder's input that it began with."""
    import sounds
    generator, half = Generator(plait, case.files), case.count // 2
    wanted = case.wanted[1]
    first = case.submit(generator, 1, max_tokens=half, keep="true")
    drain(generator, first)
    more = generator.tokens(wanted[half:half + 2], None, first, max_tokens=case.count - half - 2)
    refused(lambda: generator.submit(wanted[:1], {"input_features": sounds.features(0)}, first), "conversation")
    plait.call("request_release", first)
    generator.close()
    assert more == wanted[half + 2:], f"{case.name}, continued: {more}, expected {wanted[half + 2:]}"


def check_suppressed(plait, case):
    """Suppressed tokens, by option or by the model's files."""
    wanted, ids = case.wanted[0], case.given[0][1]
    often = max(set(wanted), key=wanted.count)
    generator = Generator(plait, case.files)
    never = generator.tokens(ids, max_tokens=case.count, suppress_tokens=often)
    later = generator.tokens(ids, max_tokens=case.count, begin_suppress_tokens=f"{wanted[0]},100000")
    generator.close()
    assert often not in never and never[:wanted.index(often)] == wanted[:wanted.index(often)], f"{never}, without {often}: {wanted}"
    assert later[0] != wanted[0] and wanted[0] in later[1:], f"{later}, not first {wanted[0]}"
    settings = {"suppress_tokens": [-1, often], "begin_suppress_tokens": None}
    generator = Generator(plait, case.files | {"generation_config.json": json.dumps(settings).encode()})
    assert generator.tokens(ids, max_tokens=case.count) == never
    assert generator.tokens(ids, max_tokens=case.count, suppress_tokens="79") == wanted
    generator.close()


def tokenizer():
    """Words w0 to w79, and an end of text, 2, after each text."""
    template = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "w2", "type_id": 0}}]
    return json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
                       "post_processor": {"type": "TemplateProcessing", "single": template, "pair": template,
                                          "special_tokens": {"w2": {"id": "w2", "ids": [2], "tokens": ["w2"]}}},
                       "model": {"type": "WordLevel", "vocab": {f"w{i}": i for i in range(80)}, "unk_token": "w0"}}).encode()


def check_texts(plait, cases):
    """A text is the encoder's, with its end; where the encoder takes a sound it is the decoder's, as it stands."""
    def text(generator, ids, tensors=None):
        request, options = c_void_p(), generator.options(tensors, temperature=0, ignore_eos="true", max_tokens=14)
        words = " ".join(f"w{one}" for one in ids).encode()
        plait.call("generator_submit_text", generator.handle, words, c_int64(len(words)), options, None, ctypes.byref(request))
        plait.call("options_release", options)
        return generator.answer(request)[0]

    bart, whisper = cases["bart"], cases["whisper"]
    generator = Generator(plait, bart.files | {"tokenizer.json": tokenizer()})
    ids = bart.given[0][1]
    got, wanted = text(generator, ids), generator.tokens([*ids, 2], max_tokens=14)
    generator.close()
    assert got == wanted != bart.wanted[0], f"{got}, expected {wanted}"
    generator = Generator(plait, whisper.files | {"tokenizer.json": tokenizer()})
    for words in (whisper.begin, []):
        got = text(generator, words, whisper.given[1][0])
        assert got == whisper.wanted[1], f"{got}, expected {whisper.wanted[1]}"
    generator.close()


def drain(generator, request):
    """Pulls all events, and keeps the request."""
    event = Event(struct_size=ctypes.sizeof(Event))
    while True:
        generator.plait.call("request_next", request, c_int64(60000), ctypes.byref(event))
        if event.kind == EVENT_END:
            return


def refused(action, *words):
    try:
        action()
    except Refused as error:
        assert all(word in str(error) for word in words), f"{error}: expected {words}"
        return
    raise AssertionError(f"was taken, expected an error with {words}")


def check_refusals(plait, cases):
    import numpy
    sound, text, pair = cases["whisper"], cases["bart"], cases["mt5"]
    features = sound.given[0][0]["input_features"]
    generator = Generator(plait, sound.files)
    refused(lambda: generator.submit([3]), "input_features", "missing")
    for wrong, *words in ((features[0], "input_features", "dimensions"), (features[:, :-1], "dimension 2 is 2999, expected 3000"),
                          (features[:-1], "dimension 1 is 19, expected 20"),
                          (features.astype(numpy.int32), "input_features", "expected f32"),
                          (numpy.stack([features] * 2), "dimension 0", "is 2")):
        refused(lambda: generator.submit([3], {"input_features": wrong}), *words)
    refused(lambda: generator.submit([3], {"input_values": features}), "input_features", "input_values")
    refused(lambda: generator.submit([3], {"input_features": features, "pixel_values": features}), "input_features", "pixel_values")
    refused(lambda: generator.submit([80], sound.given[0][0]), "token id 80 is out of range")
    refused(lambda: generator.submit([3] * 49, sound.given[0][0]), "49 tokens", "context 48")
    generator.close()

    generator = Generator(plait, text.files)
    refused(lambda: generator.submit(list(range(3, 52))), "49 tokens", "the encoder takes 48")
    refused(lambda: generator.submit([3, 80]), "token id 80 is out of range", "encoder")
    refused(lambda: generator.submit([]), "the prompt is empty")
    refused(lambda: generator.submit([3], {"input_features": features}), "takes text", "input_features")
    refused(lambda: generator.submit([3], decoder_ids="80"), "token id 80 is out of range")
    generator.close()
    generator = Generator(plait, text.files, cache_bytes=10 * TOKEN_BYTES)
    refused(lambda: generator.submit(list(range(3, 20))), "the encoder makes")
    generator.close()

    def opens(case, without=(), **others):
        changed = {name: data for name, data in case.files.items() if name not in without}
        options = {key: others.pop(key) for key in list(others) if key == "mesh"}
        Generator(plait, changed | {name.replace("__", "."): data for name, data in others.items()}, **options).close()

    refused(lambda: opens(text, ["onnx/encoder_model.onnx"]), "encoder_hidden_states", "not next to")
    refused(lambda: opens(pair, ["encoder_model.onnx"]), "encoder", "not next to")
    refused(lambda: opens(pair, encoder_model__onnx=pair.files["decoder_model.onnx"]), "encoder_model.onnx")
    refused(lambda: opens(cases["marian"], encoder_model__onnx=text.files["onnx/encoder_model.onnx"]), "last_hidden_state", "32]",
            "encoder_hidden_states", "24]")
    for mesh in ("tensor=2", "data=2", "pipeline=2"):
        refused(lambda: opens(text, mesh=mesh), "recognised", "encoder")
    nothing = text.files | {"config.json": b"{}"}
    generator = Generator(plait, nothing)
    refused(lambda: generator.submit([3]), "decoder_start_token_id")
    assert generator.tokens(text.given[0][1], max_tokens=text.count, decoder_ids=",".join(map(str, text.begin))) == text.wanted[0]
    generator.close()


def check_command_line(program, cases):
    import npy_files
    for case in cases.values():
        with tempfile.TemporaryDirectory() as scratch:
            tensors, ids = case.given[0]
            line = [program, "generate", case.folder, "--temperature", "0", "--json", "--ignore-eos",
                    "--max-tokens", str(case.count)]
            if tensors:
                path = os.path.join(scratch, "features.npy")
                array = tensors["input_features"]
                npy_files.write(path, "<f4", array.shape, array.flatten().tolist())
                line += ["--input-features", path]
            if ids:
                line += ["--ids", ",".join(map(str, ids))]
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{case.name}: {done.stderr}"
            assert json.loads(done.stdout)["ids"] == case.wanted[0], f"{case.name}: {done.stdout}"


def main():
    if not has_onnxruntime():
        return 0
    plait, program, fixtures = Plait(sys.argv[1]), sys.argv[2], sys.argv[3]
    with open(os.path.join(fixtures, "zoo", "seq2seq", "goldens.json"), encoding="utf-8") as file:
        goldens = json.load(file)
    cases = {name: Case(fixtures, name, golden) for name, golden in (goldens | {"whisper_genai": goldens["whisper"]}).items()}
    for case in cases.values():
        check_results(plait, case)
        check_conversation(plait, case)
        print(f"{case.name}: {len(case.wanted)} prompts, one by one, in company and preempted")
    check_suppressed(plait, cases["bart"])
    check_texts(plait, cases)
    check_refusals(plait, cases)
    check_command_line(program, cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
