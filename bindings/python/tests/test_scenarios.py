"""scenarios.txt in Python."""
import asyncio
import json
import os
import shutil
import tempfile
import unittest
import urllib.request

import numpy
import plait
from lists import SMALL, fixture, greedy, ids_of, read

LIST = read("scenarios.txt")


def inputs_of(session, prompt):
    """What an exported decoder reads for a prompt without a past."""
    out = {}
    for one in session.inputs():
        if "past" in one.name:
            out[one.name] = numpy.zeros((1, one.shape[1], 0, one.shape[3]), numpy.float32)
        else:
            values = {"input_ids": prompt, "position_ids": range(len(prompt))}.get(one.name, [1] * len(prompt))
            out[one.name] = numpy.array([list(values)], numpy.int64)
    return out


class Scenarios(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.path = fixture(LIST["model"])
        cls.model = plait.open(cls.path)
        cls.generator = cls.model.generator(**SMALL)
        cls.prompt, cls.greedy = ids_of(LIST["prompt"]), ids_of(LIST["greedy"])

    @classmethod
    def tearDownClass(cls):
        cls.generator.close()
        cls.model.close()

    def test_stream_text(self):
        tokens = int(LIST["stream.max_tokens"])
        with self.generator.submit(LIST["stream.prompt"], **greedy(tokens)) as request:
            pulled = list(request)
            self.assertEqual(request.usage().new_tokens, tokens)
        self.assertEqual([one.id for one in pulled if one.id is not None], ids_of(LIST["stream.tokens"]))
        text = "".join(one.text for one in pulled)
        self.assertEqual(text.encode().hex(), LIST["stream.text_hex"])
        self.assertEqual(self.generator.generate(LIST["stream.prompt"], **greedy(tokens)), text)

    def test_which_stop_ended_it(self):
        tokens = int(LIST["stream.max_tokens"])
        text = self.generator.generate(LIST["stream.prompt"], **greedy(tokens))
        stops = ["not in the text", text[2:4]]
        with self.generator.submit(LIST["stream.prompt"], stop=stops, **greedy(tokens)) as request:
            pulled = list(request)
        self.assertEqual("".join(one.text for one in pulled), text[:text.index(stops[1])])
        self.assertEqual([one.stop for one in pulled], [None] * (len(pulled) - 1) + [1])

    def test_async_stream(self):
        async def pull():
            return [token.id async for token in self.generator.submit(self.prompt, **greedy(16)) if token.id is not None]

        self.assertEqual(asyncio.run(pull()), self.greedy)

    def test_batch_of_prompts(self):
        options = greedy(int(LIST["batch.max_tokens"]))
        requests = [self.generator.submit(ids_of(ids), **options) for ids in LIST["batch.prompts"].split(";")]
        for request, expected in zip(requests, LIST["batch.tokens"].split(";"), strict=True):
            self.assertEqual(request.ids(), ids_of(expected))

    def test_requests_by_mailbox(self):
        """The same, pulled by one thread as tokens come."""
        options = greedy(int(LIST["batch.max_tokens"]))
        requests = [self.generator.submit(ids_of(ids), **options) for ids in LIST["batch.prompts"].split(";")]
        got, ended = [[] for _ in requests], 0
        with plait.Mailbox() as mailbox:
            for tag, request in enumerate(requests):
                request.attach(mailbox, tag)
            while ended < len(requests):
                tag = mailbox.next(60)
                try:
                    while (token := requests[tag].next(0)) is not None:
                        got[tag].append(token.id)
                    ended += 1
                except plait.Timeout:
                    pass
            with self.assertRaises(plait.Timeout):
                mailbox.next(0)
            mailbox.post(-7)
            self.assertEqual(mailbox.next(), -7)
        self.assertEqual([[one for one in ids if one is not None] for ids in got],
                         [ids_of(ids) for ids in LIST["batch.tokens"].split(";")])

    def test_server_inside(self):
        """What other programs get over HTTP while this one generates."""
        with plait.Server(address="127.0.0.1:0") as server:
            server.add("gemma", self.model, self.generator)
            with self.assertRaises(plait.Error):
                server.add("gemma", self.model, self.generator)
            body = json.dumps({"model": "gemma", "prompt": LIST["stream.prompt"], "max_tokens": 12, "temperature": 0}).encode()
            with urllib.request.urlopen(server.address + "/v1/completions", body, timeout=60) as answer:
                self.assertEqual(json.load(answer)["usage"]["completion_tokens"], 12)
            self.assertTrue(server.drain(30))
            self.assertEqual(server.statistics().calls, 0)

    def test_embeddings(self):
        with self.generator.submit(self.prompt, kind="embed", pooling="mean") as request:
            expected = [float(one) for one in LIST["embed.first"].split(",")]
            numpy.testing.assert_allclose(request.result()[:len(expected)], expected, atol=1e-4)

    def test_strings_and_lists(self):
        file = numpy.frombuffer(bytes.fromhex("".join(LIST[f"strings.model_hex{i}"] for i in range(1, 5))), numpy.uint8)
        words = [part.split(",") for part in LIST["strings.words"].split(";")]
        x, joined = LIST["strings.x"].split(","), LIST["strings.joined"].split(",")
        with plait.open({"model.onnx": file}) as model, model.session(threads=1) as session:
            self.assertEqual([(one.name, one.dtype, one.is_list) for one in session.inputs()],
                             [("words", plait.DType.STRING, True), ("x", plait.DType.STRING, False)])
            for form in (numpy.array(x), numpy.array(x, object), x):
                out = session.run({"words": [numpy.array(part) for part in words], "x": form})
                self.assertEqual(out["joined"].tolist(), joined)
                self.assertEqual([part.tolist() for part in out["more"]], words + [joined])
            with self.assertRaises(plait.Error):
                session.run({"words": plait.Tensor.of(numpy.array(x)), "x": x})

    def test_optional_sequence(self):
        file = numpy.frombuffer(bytes.fromhex("".join(LIST[f"optional.model_hex{i}"] for i in (1, 2, 3))), numpy.uint8)
        words = [part.split(",") for part in LIST["strings.words"].split(";")]
        with plait.open({"model.onnx": file}) as model, model.session(threads=1) as session:
            self.assertEqual([one.is_list for one in session.inputs() + session.outputs()], [2, 0, 2])
            for given in ([words], [[]], []):
                out = session.run({"given": given})
                self.assertEqual(out["has"], bool(given))
                self.assertEqual([[part.tolist() for part in one] for one in out["again"]], given)
            for wrong in ([words, words], words):  # two lists, and a list of tensors
                with self.assertRaises(plait.Error):
                    session.run({"given": wrong})

    def test_session_tensors(self):
        with plait.open(fixture(LIST["session.model"])) as model, model.session(threads=1) as session:
            inputs = inputs_of(session, self.prompt)
            logits = session.run(inputs, ["logits"])["logits"]
            self.assertEqual([int(logits[0, -1].argmax())], ids_of(LIST["session.likeliest"]))
            everything = session.run(inputs)
            self.assertEqual(list(everything), [one.name for one in session.outputs()])
            numpy.testing.assert_array_equal(everything["logits"], logits)
            # Arrays that are not row-major are copied; results outlive the session.
            turned = {name: numpy.asfortranarray(array) for name, array in inputs.items()}
            again = session.run(turned, ["logits"])["logits"]
        numpy.testing.assert_array_equal(again, logits)

    def test_logprobs_and_samples(self):
        with self.generator.submit(self.prompt, logprobs=3, samples=2, max_tokens=4, seed=7, ignore_eos=True) as request:
            tokens = [one for one in request if one.id is not None]
        self.assertEqual({one.sample for one in tokens}, {0, 1})
        for one in tokens:
            self.assertEqual(len(one.top), 3)
            self.assertTrue(one.logprob <= one.top[0][1] + 1e-6 <= 1e-5)

    def test_logprobs_of_a_prompt(self):
        expected = [float(one) for one in LIST["prompt_logprobs"].split(",")]
        with self.generator.submit(self.prompt, prompt_logprobs=2, **greedy(1)) as request:
            tokens = [one for one in request if one.prompt]
        self.assertEqual([one.id for one in tokens], self.prompt)
        self.assertIsNone(tokens[0].logprob)
        numpy.testing.assert_allclose([one.logprob for one in tokens[1:]], expected, atol=1e-4)
        self.assertEqual([len(one.top) for one in tokens], [0] + [2] * len(expected))
        with self.generator.submit(self.prompt, prompt_logprobs=0, **greedy(16)) as request:
            self.assertEqual(request.ids(), self.greedy)

    def test_host_sampling(self):
        with self.generator.submit(self.prompt, sampler=lambda logits: int(logits.argmax()), **greedy(16)) as request:
            self.assertEqual(request.ids(), self.greedy)
        ids = []
        with self.generator.submit(self.prompt, host_sampling=True, **greedy(16)) as request:
            for token in request:
                if token.logits is not None:
                    request.push(token.logits.argmax())
                if token.id is not None:
                    ids.append(token.id)
        self.assertEqual(ids, self.greedy)

        def fails(logits):
            raise KeyError("no choice")

        with self.assertRaisesRegex(KeyError, "no choice"), self.generator.submit(self.prompt, sampler=fails) as request:
            request.text()

    def test_model_from_memory(self):
        files = {}
        for name in ("model.onnx", "model.onnx.data", "tokenizer.json", "tokenizer_config.json"):
            with open(os.path.join(self.path, name), "rb") as file:
                files[name] = file.read()
        with plait.open(files) as memory:
            other = memory.generator(**SMALL)
        del files, memory
        request = other.submit(self.prompt, **greedy(16))
        other.close()
        self.assertEqual(request.ids(), self.greedy)

    def test_mesh_of_threads(self):
        with self.model.generator(mesh=LIST["mesh"], **SMALL) as ranks:
            self.assertEqual(ranks.submit(self.prompt, **greedy(16)).ids(), self.greedy)
            self.assertEqual(len(ranks.ranks()), 2)

    def test_saved_conversation(self):
        with self.generator.submit(self.prompt, keep=True, **greedy(int(LIST["saved.max_tokens"]))) as begun:
            self.assertEqual(begun.ids(), ids_of(LIST["saved.begun"]))
            saved = begun.save()
        with self.model.generator(**SMALL) as other:
            more = other.submit(ids_of(LIST["saved.more"]), parent=other.restore(saved), **greedy(16))
            self.assertEqual(more.ids(), ids_of(LIST["saved.continued"]))

    def test_texts(self):
        text = bytes.fromhex(LIST["utf8.hex"]).decode()
        with self.model.tokenizer() as tokenizer:
            ids = tokenizer.encode(text, special=False)
            self.assertEqual(ids.tolist(), ids_of(LIST["utf8.tokens"]))
            self.assertEqual(tokenizer.decode(ids, skip_special=False), text)
            self.assertEqual(tokenizer.facts().vocabulary, 512)
            self.assertEqual(tokenizer.id(tokenizer.piece(5)), 5)
            self.assertEqual(b"".join(tokenizer.bytes(int(one)) for one in ids).decode(), text)
            chat = [{"role": "user", "content": "the sea"}]
            ids = tokenizer.encode(tokenizer.chat(chat), special=False)
        self.assertEqual(self.generator.chat(chat, **greedy(8)).ids(), self.generator.submit(ids, **greedy(8)).ids())

    def test_leaving_the_loop_cancels(self):
        request = self.generator.submit(self.prompt, **greedy(400))
        for seen, _ in enumerate(request):
            if seen == 2:
                break
        rest = []
        while (token := request.next()) is not None:
            rest.append(token)
        self.assertEqual(rest[-1].finish, plait.Finish.CANCELLED)
        self.assertLess(len(rest), 390)

    def test_fine_tune(self):
        document = numpy.array([ids_of(LIST["train.ids"])])
        losses = [float(one) for one in LIST["train.losses"].split(",")]
        for mesh in (None, LIST["train.mesh"]):
            options = {"threads": 1, "optimizer": "sgd", "lr": LIST["train.lr"], "schedule": "constant", "weight_decay": 0}
            with self.model.trainer(mesh=mesh, **options) as trainer:
                for loss in losses:
                    self.assertAlmostEqual(trainer.step(document).loss, loss, delta=1e-3)
                self.assertLess(trainer.evaluate(document).loss, losses[0])
                if mesh:
                    continue
                # A loss of the host's: the same gradient of the logits.
                logits = trainer.forward(document)
                chances = numpy.exp(logits - logits.max(-1, keepdims=True))
                gradient = chances / chances.sum(-1, keepdims=True)
                gradient[0, numpy.arange(document.size - 1), document[0, 1:]] -= 1
                gradient[0, -1] = 0
                before = trainer.evaluate(document).loss
                trainer.backward(document, (gradient / (document.size - 1)).astype(numpy.float32))
                trainer.update()
                self.assertLess(trainer.evaluate(document).loss, before)

    def test_run_over_data(self):
        with tempfile.TemporaryDirectory() as folder:
            data, out = os.path.join(folder, "data.npy"), os.path.join(folder, "run")
            numpy.save(data, numpy.tile(numpy.array(ids_of(LIST["train.ids"]), numpy.int32), 20))
            options = {"threads": 1, "data": data, "seq": 16, "batch": 2, "lora": 4}
            seen = []
            with self.model.trainer(steps=3, out=out, **options) as trainer:
                last = trainer.run(seen.append)
                trainer.export(os.path.join(folder, "tuned"))
            self.assertEqual((last.ending, [one.step for one in seen if one.ending == plait.Ending.NONE]), (plait.Ending.STEPS, [1, 2, 3]))
            with plait.open(os.path.join(folder, "tuned")) as tuned:
                self.assertTrue(tuned.info()["recognised"])

            def stops(step):
                raise RuntimeError("enough")

            with self.model.trainer(steps=100, **options) as trainer:
                with self.assertRaisesRegex(RuntimeError, "enough"):
                    trainer.run(stops)
                while (step := trainer.next()).ending == plait.Ending.NONE:
                    pass
            self.assertEqual(step.ending, plait.Ending.CANCELLED)

    def test_adapters(self):
        directory = tempfile.mkdtemp()
        options = {"threads": 1, "lora": 8, "lr": LIST["adapter.lr"], "schedule": "constant"}
        document = numpy.array([ids_of(LIST["adapter.ids"])])
        with self.model.trainer(**options) as trainer:
            for _ in range(int(LIST["adapter.steps"])):
                trainer.step(document)
            trainer.save_adapter(directory)
        with self.model.generator(adapter_slots=1, adapter_rank=8, **SMALL) as adapted:
            adapted.add_adapter("taught", directory)
            self.assertEqual(adapted.adapters(), ["taught"])
            taught, plain = (adapted.submit(self.prompt, **options) for options in ({"adapter": "taught", **greedy(8)}, greedy(16)))
            self.assertEqual(taught.ids(), ids_of(LIST["adapter.tokens"]))
            self.assertEqual(plain.ids(), self.greedy)
            adapted.remove_adapter("taught")
            with self.assertRaisesRegex(plait.Error, "taught") as caught:
                adapted.submit(self.prompt, adapter="taught")
            self.assertEqual(caught.exception.code, plait.Code.NOT_FOUND)
        with self.model.generator(adapters={"taught": directory}, **SMALL) as adapted:
            self.assertEqual(adapted.submit(self.prompt, adapter="taught", **greedy(8)).ids(), ids_of(LIST["adapter.tokens"]))
        shutil.rmtree(directory)

    def test_what_there_is(self):
        self.assertIn("mesh", [one["key"] for one in plait.options()])
        self.assertIn("MatMul", [one["op"] for one in plait.ops()])
        self.assertGreater(plait.system()["memory"]["bytes"], 0)
        self.assertEqual(self.model.plan(mesh="tensor=2")["ranks"], 2)
        self.assertGreater(self.model.plan_training(lora=4)["totals"]["trained_parameters"], 0)
        self.assertIn("plait.PagedAttention", self.model.dump("raise"))
        self.assertGreater(self.generator.statistics().pages, 0)
        with tempfile.TemporaryDirectory() as folder:
            self.model.export(folder, bits=4)
            self.assertTrue(any("rounded" in text for _, text in self.model.log()))
            with plait.open(folder) as small, small.generator(**SMALL) as generator:
                self.assertEqual(len(generator.submit(self.prompt, **greedy(4)).ids()), 4)


if __name__ == "__main__":
    unittest.main()
