"""Objects come and go in any order, from any thread; Ctrl-C ends what runs; nothing is left."""
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy
import plait
from lists import SMALL, fixture, greedy, ids_of, read

LIST = read("scenarios.txt")


def resident_kb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


class Lifetimes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = plait.open(fixture(LIST["model"]))
        cls.prompt, cls.greedy = ids_of(LIST["prompt"]), ids_of(LIST["greedy"])

    def test_memory_is_flat(self):
        generator, session = self.model.generator(**SMALL), plait.open(fixture(LIST["session.model"])).session(threads=1)
        big = numpy.zeros((1, 512), numpy.int64)

        def once():
            with plait.open(fixture(LIST["model"]), tokenizer="none") as model:
                model.info()
            with generator.submit(self.prompt, logprobs=2, **greedy(4)) as request:
                request.text()
            generator.submit(self.prompt, **greedy(400))  # forgotten
            with self.assertRaises(plait.Error):
                session.run({"input_ids": big}, ["logits"])
            plait.Tensor.of(big).numpy().sum()
            self.model.tokenizer().decode(self.model.tokenizer().encode("the sea " * 50))

        for _ in range(50):
            once()
        gc.collect()
        before = resident_kb()
        for _ in range(250):
            once()
        gc.collect()
        self.assertLess(resident_kb() - before, 4096)
        self.assertEqual(generator.statistics().waiting, 0)

    def test_options_that_are_tensors(self):
        rows = numpy.zeros((1, 3), numpy.float32)
        with self.model.generator(**SMALL) as generator:
            with self.assertRaises(plait.Error) as caught:  # a decoder of tokens only
                generator.submit(self.prompt, inputs_embeds=rows)
            self.assertIn("takes tokens only", str(caught.exception))
            with self.assertRaises(plait.Error) as caught:
                generator.submit(self.prompt, inputs_embeds=rows.astype(numpy.int32))
            self.assertIn("expected f32, f16 or bf16", str(caught.exception))
            with self.assertRaises(plait.Error):
                generator.submit(self.prompt, seed=None, max_tokens=rows)

    def test_any_order(self):
        model = plait.open(fixture(LIST["model"]))
        generator = model.generator(**SMALL)
        request = generator.submit(self.prompt, **greedy(16))
        model.close(), generator.close(), model.close()
        self.assertEqual(request.ids(), self.greedy)
        request.close()
        with self.assertRaises(plait.Error) as caught:
            request.next()
        self.assertEqual(caught.exception.code, plait.Code.CLOSED)
        result = self.model.generator(**SMALL).submit(self.prompt, kind="score").result()
        gc.collect()
        self.assertEqual(int(result[-1].argmax()), self.greedy[0])

    def test_threads(self):
        with self.model.generator(**SMALL) as generator:
            failures, ended = [], threading.Event()

            def work():
                try:
                    while not ended.is_set():
                        with generator.submit(self.prompt, **greedy(16)) as request:
                            assert request.ids() == self.greedy
                        generator.submit(self.prompt, **greedy(100)).close()
                except BaseException as error:
                    failures.append(error)

            threads = [threading.Thread(target=work) for _ in range(4)]
            for one in threads:
                one.start()
            time.sleep(1)
            ended.set()
            for one in threads:
                one.join()
            self.assertEqual(failures, [])

    def test_other_threads_run_meanwhile(self):
        # A call that takes long does not hold the interpreter's lock.
        with self.model.generator(**SMALL) as generator, generator.submit(self.prompt, host_sampling=True) as request:
            request.next()  # waits for a token to be pushed
            waiting = threading.Thread(target=lambda: self.assertRaises(plait.Timeout, request.next, 0.5))
            waiting.start()
            start, turns = time.monotonic(), 0
            while waiting.is_alive():
                turns += 1
            self.assertGreater(turns, 1000)
            self.assertLess(time.monotonic() - start, 5)

    def test_timeouts(self):
        with self.model.generator(**SMALL) as generator, generator.submit(self.prompt, host_sampling=True) as request:
            request.next()
            start = time.monotonic()
            with self.assertRaises(TimeoutError):
                request.next(timeout=0.3)
            self.assertTrue(0.25 < time.monotonic() - start < 2)

    def run_program(self, text, interrupted_after=None):
        """Runs a program; (exit status, output, seconds from the interrupt)."""
        program = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        start = time.monotonic()
        if interrupted_after:
            for line in program.stdout:
                if interrupted_after in line:
                    break
            time.sleep(0.2)
            start = time.monotonic()
        for _ in range(3 if interrupted_after else 0):
            program.send_signal(signal.SIGINT)
            try:
                program.wait(timeout=1.5)
                break
            except subprocess.TimeoutExpired:  # Python ignores an interrupt that comes while an object is finalized
                pass
        out = program.communicate(timeout=60)[0]
        return program.returncode, out, time.monotonic() - start

    def test_interrupts(self):
        begin = f"import plait, numpy\nmodel = plait.open({fixture(LIST['model'])!r})\n"
        generator = f"generator = model.generator(**{SMALL!r})\n"
        waits = {
            "next": generator + "r = generator.submit([5], host_sampling=True)\nr.next()\nprint('begun', flush=True)\nr.next()",
            "result": generator + "rs = [generator.submit([5] * 400, kind='score') for _ in range(60)]\n"
            "print('begun', flush=True)\nwhile True: [r.result() for r in rs]",
            "step": "t = model.trainer(threads=1)\nids = numpy.ones((64, 500), 'i8')\nt.step(ids[:1, :8])\nprint('begun', flush=True)\n"
            "while True: t.step(ids)",
            "session": "s = model.session(threads=1)\nprint('begun', flush=True)\n"
            "x = {o.name: numpy.zeros([1 if d < 0 else d for d in o.shape] if 'past' not in o.name else (1, o.shape[1], 0, o.shape[3]), "
            "'f4' if 'past' in o.name else 'i8') for o in s.inputs()}\nx = {k: (numpy.ones((1, 300), 'i8') if 'past' not in k else v) "
            "for k, v in x.items()}\nwhile True: s.run(x)",
        }
        for name, program in waits.items():
            with self.subTest(name):
                status, out, seconds = self.run_program(begin + program, interrupted_after="begun")
                self.assertIn("KeyboardInterrupt", out)
                self.assertEqual(status, -signal.SIGINT)
                self.assertLess(seconds, 5)

    def test_exit_while_objects_live(self):
        status, out, _ = self.run_program(
            f"import plait, threading\nmodel = plait.open({fixture(LIST['model'])!r}, background=True)\n"
            f"generator = model.generator(**{SMALL!r})\nrequest = generator.submit([5], max_tokens=400, ignore_eos=True)\n"
            # What is left open is closed at exit: a thread that still pulls then gets CLOSED, if it gets as far.
            "def pull():\n  try: request.text()\n  except plait.Error: pass\n"
            "threading.Thread(target=pull, daemon=True).start()\nrequest.next()\nprint('done')")
        self.assertEqual((status, out), (0, "done\n"))


if __name__ == "__main__":
    unittest.main()
