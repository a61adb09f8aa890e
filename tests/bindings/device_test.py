"""Option device through the command line: what is missing is named, and the emulated device generates what the processor does.

usage: device_test.py PLAIT FIXTURES EMULATED PLUGIN [MPIRUN]

EMULATED: a plug-in with the emulated driver and the kernels, as the host's compiler builds them. PLUGIN: one for the real
driver.
"""
import ctypes
import json
import os
import re
import subprocess
import sys
import time
import unittest

from limits import HANG_S, machine_load

PLAIT = FIXTURES = EMULATED = PLUGIN = MPIRUN = None
MODELS = ("gemma3-standard23", "llama-standard23")


class Device(unittest.TestCase):
    def generate(self, model, *options, devices=1, mesh=""):
        words = [PLAIT, "generate", os.path.join(FIXTURES, model), "--ids", "5,3,9", "--max-tokens", "8", "--threads", "1",
                 "--option", "temperature=0"]
        for option in options:
            words += ["--option", option]
        if mesh:
            words += ["--mesh", mesh]
        environment = dict(os.environ, PLAIT_EMULATE_DEVICES=str(devices), PLAIT_EMULATE_BYTES=str(2 << 30))
        done = subprocess.run(words, capture_output=True, timeout=HANG_S, env=environment)
        return done.returncode, done.stdout, done.stderr.decode()

    def generate_by_processes(self, count, *options, faults={}):
        """The same over processes with a device each; `faults`: PLAIT_EMULATE_FAIL by rank."""
        words = [MPIRUN, "--allow-run-as-root", "--oversubscribe"]
        for rank in range(count):
            words += ([":"] if rank else []) + ["-n", "1", "env", "PLAIT_EMULATE_FAIL=" + faults.get(rank, ""), PLAIT, "generate",
                                                os.path.join(FIXTURES, MODELS[1]), "--ids", "5,3,9", "--max-tokens", "8", "--threads",
                                                "1", "--mesh", f"tensor={count}", "--option", "temperature=0", "--option",
                                                "device=emulated", "--option", "cuda_plugin=" + EMULATED, "--option", "cache_bytes=4M"]
            for option in options:
                words += ["--option", option]
        start = time.monotonic()
        done = subprocess.run(words, capture_output=True, timeout=HANG_S, env=dict(os.environ, PLAIT_EMULATE_DEVICES=str(count),
                                                                                PLAIT_EMULATE_BYTES=str(2 << 30)))
        return done.returncode, done.stdout, done.stderr.decode(), time.monotonic() - start

    def refused(self, *options, devices=1):
        status, _, said = self.generate(MODELS[0], *options, devices=devices)
        self.assertNotEqual(status, 0)
        return said

    def test_doctor_lists_the_devices(self):
        environment = dict(os.environ, PLAIT_EMULATE_DEVICES="2", PLAIT_EMULATE_BYTES=str(1 << 30))
        done = subprocess.run([PLAIT, "doctor", "--json", "--option", "cuda_plugin=" + EMULATED], capture_output=True, timeout=HANG_S,
                              env=environment, check=True)
        cuda = json.loads(done.stdout)["cuda"]
        self.assertEqual((cuda["available"], cuda["driver"]), (True, "13.0"))
        self.assertEqual([one["device"] for one in cuda["devices"]], ["cuda:0", "cuda:1"])
        self.assertEqual({one["bytes"] for one in cuda["devices"]}, {1 << 30})
        done = subprocess.run([PLAIT, "doctor", "--option", "cuda_plugin=" + EMULATED], capture_output=True, timeout=HANG_S,
                              env=dict(environment, PLAIT_EMULATE_DEVICES="0"), check=True)
        self.assertIn(b"no CUDA device can be used", done.stdout)

    def test_no_op_of_a_recognised_decoder_runs_on_the_host(self):
        def islands(model, *options):
            words = [PLAIT, "inspect", os.path.join(FIXTURES, model), "--mesh", "tensor=2", "--json"]
            for option in options:
                words += ["--option", option]
            return json.loads(subprocess.run(words, capture_output=True, timeout=HANG_S, check=True).stdout)["islands"]

        self.assertEqual(islands("zoo/mixtral/dynamo18"), {})
        for model in ("gemma3-standard23", "zoo/mixtral/dynamo18", "zoo/lfm2/hf5", "zoo/deepseek_v3/optimum18",
                      "zoo/gptj/dynamo18", "zoo/phi3_long/dynamo18", "zoo/nemotron/genai_fp32"):
            self.assertEqual(islands(model, "device=cuda"), {}, model)

    def test_the_emulated_device_generates_what_the_processor_does(self):
        for model in MODELS:
            status, expected, _ = self.generate(model, "device=cpu")
            self.assertEqual(status, 0)
            status, auto, _ = self.generate(model, "device=auto")
            self.assertEqual((status, auto), (0, expected))
            status, out, said = self.generate(model, "device=emulated", "cuda_plugin=" + EMULATED, "cache_bytes=4M")
            self.assertEqual((status, out), (0, expected), said)

    def test_ranks_have_a_device_each(self):
        _, expected, _ = self.generate(MODELS[1], "device=cpu")
        options = ("device=emulated", "cuda_plugin=" + EMULATED, "cache_bytes=4M")
        status, out, said = self.generate(MODELS[1], *options, devices=2, mesh="tensor=2")
        self.assertEqual((status, out), (0, expected), said)
        status, out, said = self.generate(MODELS[1], *options, devices=1, mesh="tensor=2")
        self.assertNotEqual(status, 0)
        self.assertIn("there is no CUDA device 1: the driver has 1 device", said)

    def test_ranks_share_a_device_where_that_is_asked_for(self):
        _, expected, _ = self.generate(MODELS[1], "device=cpu")
        options = ("cuda_plugin=" + EMULATED, "cache_bytes=4M")
        status, out, said = self.generate(MODELS[1], "device=cuda:0,0", *options, devices=1, mesh="tensor=2")
        self.assertEqual((status, out), (0, expected), said)
        self.assertIn("collectives: host memory (ranks share a device)", said)
        status, out, said = self.generate(MODELS[1], "device=cuda:1,0", *options, devices=2, mesh="tensor=2")
        self.assertEqual((status, out), (0, expected), said)
        self.assertIn("collectives: peer memory\n", said)
        status, _, said = self.generate(MODELS[1], "device=cuda:0,1", *options, devices=2, mesh="tensor=4")
        self.assertNotEqual(status, 0)
        self.assertIn("option device names 2 devices", said)

    def test_a_cache_without_a_size_takes_what_is_left(self):
        def ranks(*options, megabytes):
            """Bytes of the cache, by rank, and what was said."""
            words = [PLAIT, "generate", os.path.join(FIXTURES, MODELS[0]), "--ids", "5,3,9", "--max-tokens", "4", "--threads", "1",
                     "--mesh", "tensor=2"]
            for option in ("device=emulated", "cuda_plugin=" + EMULATED, "temperature=0", *options):
                words += ["--option", option]
            done = subprocess.run(words, capture_output=True, timeout=HANG_S,
                                  env=dict(os.environ, PLAIT_EMULATE_DEVICES="2", PLAIT_EMULATE_BYTES=str(megabytes << 20)))
            said = done.stderr.decode()
            return done.returncode, [float(one) for one in re.findall(r"cache ([0-9.]+) MB", said)], said

        usual, shared = (ranks(*options, megabytes=24) for options in ((), ("gpu_memory_utilization=0.5",)))
        for status, cache, said in (usual, shared):
            self.assertEqual((status, len(set(cache)), len(cache)), (0, 1, 2), said)
        self.assertLess(shared[1][0], 0.6 * usual[1][0])
        roomy = ranks(megabytes=512)[1]
        self.assertGreater(roomy[0], usual[1][0])
        self.assertEqual(roomy, ranks(megabytes=256)[1])  # what 64 sequences of the longest length use
        status, _, said = ranks("cache_bytes=128M", megabytes=64)
        self.assertNotEqual(status, 0)
        self.assertRegex(said, r"CUDA device [01] has .* bytes\) free of 67.1 MB; rank [01] of the model needs .* bytes\): .* of weights, "
                               r"67.1 MB of keys and values and .* of workspace")
        self.assertRegex(said, r"cache_bytes=\d+M fits")

    def test_processes_sum_in_peer_memory_as_threads_do(self):
        if not MPIRUN:
            self.skipTest("there is no MPI")
        _, expected, _ = self.generate(MODELS[1], "device=cpu")
        status, threads, said = self.generate(MODELS[1], "device=emulated", "cuda_plugin=" + EMULATED, "cache_bytes=4M", devices=2,
                                              mesh="tensor=2")
        self.assertEqual((status, threads), (0, expected), said)
        self.assertIn("collectives: peer memory\n", said)
        status, out, said, _ = self.generate_by_processes(2)
        self.assertEqual((status, out), (0, expected), said)
        self.assertIn("collectives: peer memory\n", said)

    def test_processes_that_cannot_open_memory_go_through_nccl(self):
        if not MPIRUN:
            self.skipTest("there is no MPI")
        _, expected, _ = self.generate(MODELS[1], "device=cpu")
        status, out, said, _ = self.generate_by_processes(2, faults={1: "cuIpcOpenMemHandle:1"})
        self.assertEqual((status, out), (0, expected), said)
        self.assertRegex(said, r"collectives: NCCL \(rank 1: cuIpcOpenMemHandle of rank 0's buffer by device 1: "
                               r"CUDA_ERROR_UNKNOWN")

    def test_a_process_that_fails_ends_the_others_with_its_message(self):
        if not MPIRUN:
            self.skipTest("there is no MPI")
        _, _, _, usual = self.generate_by_processes(2)
        status, _, said, seconds = self.generate_by_processes(2, faults={1: "cuGraphLaunch:2"})
        self.assertNotEqual(status, 0)
        self.assertTrue(re.search(r"rank 1 aborted the world: .*cuGraphLaunch", said), said)
        # A kernel that waits for another device ends after 20 s here, and never on a GPU.
        self.assertLess(seconds, usual + 15 * machine_load())

    def test_what_is_missing_is_named(self):
        self.assertIn("/nowhere/plait_cuda.so", self.refused("device=cuda", "cuda_plugin=/nowhere/plait_cuda.so"))
        # The plug-in next to the library, or where that is built the driver.
        self.assertRegex(self.refused("device=cuda", "cuda_plugin="), "plait_cuda.so|libcuda.so.1|no CUDA device")
        self.assertIn("plait_cuda_get_plugin", self.refused("device=cuda", "cuda_plugin=libc.so.6"))
        emulated = "cuda_plugin=" + EMULATED
        self.assertIn("there is no CUDA device 3: the driver has 2 devices", self.refused("device=cuda:3", emulated, devices=2))
        said = self.refused("device=cuda", emulated, devices=0)
        self.assertIn("no CUDA-capable device is detected", said)

    def test_a_plugin_links_no_cuda_library(self):
        needed = subprocess.run(["readelf", "-d", PLUGIN], capture_output=True, check=True).stdout.decode()
        libraries = {line.split("[")[1].rstrip("]") for line in needed.splitlines() if "NEEDED" in line}
        self.assertLessEqual(libraries, {"libc.so.6", "libgcc_s.so.1", "libasan.so.8", "libubsan.so.1", "libm.so.6"})

    def test_without_a_driver_it_is_named(self):
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            said = self.refused("device=cuda", "cuda_plugin=" + PLUGIN)
            self.assertIn("libcuda.so.1", said)
            self.assertIn("install NVIDIA's driver", said)
            return
        self.skipTest("this machine has a driver")

    def test_values_are_checked(self):
        for value in ("gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:0,", "cuda:0,x", ""):
            self.assertIn("expected auto, cpu, cuda, cuda:N, cuda:N,M or emulated", self.refused("device=" + value))


if __name__ == "__main__":
    PLAIT, FIXTURES, EMULATED, PLUGIN = sys.argv[1:5]
    MPIRUN = sys.argv[5] if len(sys.argv) > 5 else None
    unittest.main(argv=sys.argv[:1] + sys.argv[6:])
