"""wrong_arguments.txt in Python: an exception each, and the process lives on."""
import unittest

import numpy
import plait
from lists import SMALL, fixture, greedy, read
from plait import native
from plait.objects import Options
from test_scenarios import inputs_of

FINE = [1, 2, 3]


def closed(made):
    made.close()
    return made


def outcome(call):
    try:
        call()
        return "OK"
    except plait.Error as error:
        assert error.message, "a message"
        return error.code.name
    except (ValueError, OverflowError):
        return "INVALID_ARGUMENT"
    except TypeError:
        return "null"


class WrongArguments(unittest.TestCase):
    def setUp(self):
        self.model = plait.open(fixture(read("scenarios.txt")["model"]))
        self.generator = self.model.generator(**SMALL)
        self.session = self.model.session(threads=1)

    def trained(self, **options):
        with self.model.trainer(**options) as trainer:
            trainer.wait()

    def models(self):
        submit = self.generator.submit
        return {
            "model.path.missing": lambda: plait.open("no such model"),
            "model.path.null": lambda: native.plait_model_open(None, None),
            "model.path.nul": lambda: plait.open("a\0b"),
            "model.file.damaged": lambda: plait.open(fixture("manifest.json")),
            "model.memory.empty": lambda: plait.open({}),
            "model.memory.null": lambda: plait.open({"model.onnx": None}),
            "model.dump.unknown": lambda: self.model.dump("dance"),
            "model.closed": lambda: closed(plait.open(fixture("gemma3-standard23"))).info(),
            "trainer.pipeline.unknown": lambda: self.trained(mesh="pipeline=2", pipeline="2f2b"),
            "trainer.stages.many": lambda: self.trained(mesh="pipeline=64"),
            "trainer.stages.without": lambda: self.trained(stages="1,1"),
            "options.key.unknown": lambda: submit(FINE, temprature=1),
            "options.key.null": lambda: native.plait_options_set(Options({}), None, "1"),
            "options.value.wrong": lambda: submit(FINE, temperature="warm"),
            "options.value.null": lambda: native.plait_options_set(Options({}), "seed", None),
            "options.of.another": lambda: submit(FINE, threads=1),
            "options.closed": lambda: native.plait_generator_submit_ids(self.generator, numpy.ones(1, "i4"), closed(Options({})), None),
            "text.surrogate.half": lambda: submit("a\ud800b"),
        }

    def requests(self):
        submit = self.generator.submit
        return {
            "prompt.null": lambda: native.plait_generator_submit_text(self.generator, None, None, None),
            "prompt.ids.null": lambda: submit(None),
            "prompt.ids.empty": lambda: submit([]),
            "prompt.ids.negative": lambda: submit([-1]),
            "prompt.ids.large": lambda: submit([512]),
            "prompt.long": lambda: submit([0] * 600),
            "chat.no.json": lambda: self.generator.chat("no json"),
            "parent.not.kept": lambda: submit(FINE, parent=submit(FINE, **greedy(1))),
            "restore.nonsense": lambda: self.generator.restore(b"nonsense!"),
            "restore.empty": lambda: self.generator.restore(b""),
            "generator.closed": lambda: closed(self.model.generator(**SMALL)).submit(FINE),
            "request.push.unasked": lambda: submit(FINE, **greedy(1)).push(1),
            "request.result.of.text": lambda: submit(FINE, **greedy(1)).result(),
            "request.save.not.kept": lambda: submit(FINE, **greedy(1)).save(),
            "request.closed": lambda: closed(submit(FINE, **greedy(1))).next(),
        }

    def tensors(self):
        copy, memory, f32 = plait.Tensor.copy, bytes(24), plait.DType.F32
        floats = plait.Tensor.of(numpy.zeros((2, 3), numpy.float32))
        return {
            "tensor.bytes.few": lambda: copy(f32, [2, 4], memory),
            "tensor.dims.negative": lambda: copy(f32, [-1, 3], memory),
            "tensor.dims.huge": lambda: copy(f32, [2**62, 16], memory),
            "tensor.dims.null": lambda: native.plait_tensor_copy(int(f32), None, memory),
            "tensor.rank.nine": lambda: copy(f32, [1, 1, 1, 1, 1, 1, 1, 2, 3], memory),
            "tensor.dtype.none": lambda: copy(plait.DType.NONE, [6], memory),
            "tensor.read.as.another": lambda: native.plait_generator_submit_ids(self.generator, numpy.ones(3, "u1"), None, None),
            "tensor.view.outside": lambda: floats.numpy().reshape(7, 2),
            "tensor.no.text": lambda: native.plait_options_set(Options({}), "seed", floats),
            "tensor.closed": lambda: native.plait_tensor_view(closed(plait.Tensor.copy(f32, [1], bytes(4))), native.View()),
        }

    def sessions(self):
        inputs, run = inputs_of(self.session, [1]), self.session.run
        first = next(iter(inputs))
        return {
            "session.input.unknown": lambda: run({**inputs, "no such input": numpy.ones(1, "i8")}, ["logits"]),
            "session.input.missing": lambda: run({}, ["logits"]),
            "session.input.null": lambda: run({**inputs, first: None}, ["logits"]),
            "session.input.dtype": lambda: run({**inputs, first: numpy.ones((1, 1), "f4")}, ["logits"]),
            "session.input.closed": lambda: run({**inputs, first: closed(plait.Tensor.of(numpy.ones((1, 1), "i8")))}, ["logits"]),
            "session.output.unknown": lambda: run(inputs, ["no such output"]),
            "session.closed": lambda: closed(self.model.session()).inputs(),
            "tokenizer.directory.missing": lambda: plait.Tokenizer.open("no such directory"),
            "tokenizer.id.negative": lambda: self.model.tokenizer().piece(-1),
            "tokenizer.piece.unknown": lambda: self.model.tokenizer().id("no such piece"),
            "tokenizer.closed": lambda: closed(self.model.tokenizer()).encode("x"),
        }

    def test_table(self):
        table = read("wrong_arguments.txt")
        cases = {**self.models(), **self.requests(), **self.tensors(), **self.sessions()}
        self.assertEqual(sorted(cases), sorted(table))
        for name, expected in table.items():
            with self.subTest(name):
                allowed = {expected, *(["INVALID_ARGUMENT"] if expected == "null" else [])}
                if name == "tensor.no.text":  # what is no text is no str
                    allowed.add("null")
                self.assertIn(outcome(cases[name]), allowed)

    def test_messages_have_hints(self):
        with self.assertRaises(plait.Error) as caught:
            plait.open("no such model")
        self.assertEqual(caught.exception.code, plait.Code.NOT_FOUND)
        self.assertIn("no such model", caught.exception.message)
        self.assertTrue(caught.exception.hint)
        self.assertIn(caught.exception.hint, str(caught.exception))

    def test_types(self):
        for name in ("float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool",
                     "complex64", "complex128", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
            try:
                import ml_dtypes
                kind = numpy.dtype(getattr(ml_dtypes, name, name))
            except ImportError:
                continue
            array = numpy.arange(6).reshape(2, 3).astype(kind)
            tensor = plait.Tensor.of(array)
            self.assertEqual((tensor.numpy().dtype, tensor.shape), (kind, (2, 3)))
            numpy.testing.assert_array_equal(tensor.numpy(), array)
            self.assertTrue(numpy.shares_memory(numpy.asarray(tensor), array), name)
        self.assertEqual(plait.Tensor.of(numpy.float32(3)).shape, ())
        with self.assertRaisesRegex(TypeError, "datetime"):
            plait.Tensor.of(numpy.zeros(1, "datetime64[s]"))


if __name__ == "__main__":
    unittest.main()
