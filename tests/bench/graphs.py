#!/usr/bin/env python3
"""Plain ONNX graphs in Plait and in ONNX Runtime, side by side; started by `./run bench graphs`.

    graphs.py [--models NAME ...] [--rounds N] [--threads N] [--quick] [--json FILE]

Models from wheels of the package index (speech detection, file types, text in images) and those of models/make_graphs.py. Each
engine runs in a process of its own, in turn, round by round. README.md explains the figures.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE / "models"), str(HERE.parent / "bindings" / "differential")]
import differential_test as differential  # noqa: E402

LIBRARY = os.environ.get("PLAIT_LIBRARY", str(ROOT / "build/release/bindings/c/libplait.so"))
WHEELS = ROOT / ".cache" / "graph-models"
ENGINES = ("plait", "onnxruntime")
# Input sizes, by a part of the file's name; open sizes of other inputs are 1.
SIZES = {"silero_vad": {"input": (1, 576), "state": (2, 1, 128), "sr": ()}, "det_infer": {"x": (1, 3, 640, 640)},
         "rec_infer": {"x": (1, 3, 48, 320)}, "cls_infer": {"x": (1, 3, 48, 192)}, "det_small": {"x": (1, 3, 640, 640)},
         "rec_small": {"x": (1, 3, 48, 320)}, "cls_mobile": {"x": (1, 3, 48, 192)}, "resnet50": {"image": (1, 3, 224, 224)},
         "mobilenet": {"image": (1, 3, 224, 224)}, "whisper": {"input_features": (1, 80, 3000)},
         "bert": {name: (1, 128) for name in ("input_ids", "attention_mask", "token_type_ids")}}


# ---- The child: one engine, one model ----

class Plait:
    def __init__(self, path, threads):
        self.c = differential.Plait(LIBRARY)
        byref, pointer = differential.ctypes.byref, differential.c_void_p
        options, self.model, self.session = pointer(), pointer(), pointer()
        self.c.call("options_create", byref(options))
        self.c.call("options_set", options, b"threads", str(threads).encode(), differential.c_int64(-1))
        self.c.call("model_open", str(path).encode(), None, byref(self.model))
        self.c.call("session_create", self.model, options, byref(self.session))

    def prepare(self, feeds, names):
        tensors = [self.c.tensor(array) for array in feeds.values()]
        inputs = (differential.c_char_p * len(feeds))(*(name.encode() for name in feeds))
        operands, wanted = (differential.c_void_p * len(tensors))(*tensors), (differential.c_char_p * len(names))(
            *(name.encode() for name in names))
        made = (differential.c_void_p * len(names))()
        counts = differential.c_int64(len(tensors)), differential.c_int64(len(names))

        def run(keep=False):
            self.c.call("session_run", self.session, inputs, operands, counts[0], wanted, made, counts[1])
            out = [self.c.array(differential.c_void_p(one)) for one in made] if keep else None
            for one in made:
                self.c.call("tensor_release", differential.c_void_p(one))
            return out
        return run


class OnnxRuntime:
    def __init__(self, path, threads):
        import onnxruntime
        onnxruntime.set_default_logger_severity(4)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
        self.session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])

    def prepare(self, feeds, names):
        def run(keep=False):
            made = self.session.run(names, feeds)
            return made if keep else None
        return run


def peak_mib():
    """The highest resident memory of this process so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return None


def child(job):
    import numpy
    start = time.perf_counter()
    before = peak_mib()
    engine = {"plait": Plait, "onnxruntime": OnnxRuntime}[job["engine"]](job["path"], job["threads"])
    created = time.perf_counter() - start
    feeds = dict(numpy.load(job["feeds"]))
    run = engine.prepare(feeds, job["outputs"])
    made = run(keep=True)
    numpy.savez(job["results"], *made)
    run()
    times, until, busy = [], time.perf_counter() + job["seconds"], time.process_time()
    while len(times) < 3 or (time.perf_counter() < until and len(times) < 2000):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    busy = (time.process_time() - busy) / len(times)
    print(json.dumps({"run_ms": 1e3 * statistics.median(times), "busy_ms": 1e3 * busy, "create_ms": 1e3 * created,
                      "peak_mib": peak_mib() - before}))


# ---- The driver ----

def operands(name, inputs):
    import numpy
    random = numpy.random.default_rng(1)
    sizes = next((sizes for part, sizes in SIZES.items() if part in name), {})
    out = {}
    for one in inputs:
        shape = sizes.get(one.name, tuple(size if isinstance(size, int) else 1 for size in one.shape))
        if one.name == "sr":
            out[one.name] = numpy.full(shape, 16000, "int64")
        elif "mask" in one.name:
            out[one.name] = numpy.ones(shape, "int64")
        elif "int" in one.type:
            out[one.name] = random.integers(0, 2 if "type" in one.name else 200, size=shape).astype(
                "int64" if "int64" in one.type else "int32")
        else:
            out[one.name] = (random.normal(size=shape) * 0.3).astype("float32")
    return out


def find_models(folder):
    """{name: path}: the wheels' files, unpacked, and the random ones."""
    import make_graphs
    import models_test
    models_test.fetch(str(WHEELS))
    out, files = {}, folder / "wheels"
    files.mkdir(parents=True, exist_ok=True)
    for name, content in models_test.models(str(WHEELS)):
        path = files / name
        if not path.exists() or path.stat().st_size != len(content):
            path.write_bytes(content)
        out[path.stem] = path
    return out | make_graphs.make(folder)


def run_child(job):
    environment = dict(os.environ, OMP_NUM_THREADS=str(job["threads"]))
    made = subprocess.run([sys.executable, __file__, "--child", json.dumps(job)], capture_output=True, text=True, env=environment)
    if made.returncode:
        return {"error": (made.stderr.strip().splitlines() or [f"exit status {made.returncode}"])[-1]}
    return json.loads(made.stdout.strip().splitlines()[-1])


def difference(folder):
    """The largest difference of any output, over the largest magnitude of that output in ONNX Runtime's."""
    import numpy
    ours, theirs = (numpy.load(folder / f"{engine}.npz") for engine in ENGINES)
    worst = 0.0
    for one in theirs.files:
        a, b = ours[one].astype("float64"), theirs[one].astype("float64")
        if a.shape != b.shape:
            return float("inf")
        if b.size:
            worst = max(worst, float(numpy.abs(a - b).max() / max(numpy.abs(b).max(), 1e-30)))
    return worst


def measure(name, path, arguments):
    import numpy
    import onnxruntime
    onnxruntime.set_default_logger_severity(4)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        numpy.savez(folder / "feeds.npz", **operands(name, session.get_inputs()))
        names = [one.name for one in session.get_outputs()]
        del session
        rounds = {engine: [] for engine in ENGINES}
        for _ in range(arguments.rounds):
            for engine in ENGINES:
                rounds[engine].append(run_child({
                    "engine": engine, "path": str(path), "threads": arguments.threads, "seconds": arguments.seconds,
                    "feeds": str(folder / "feeds.npz"), "outputs": names, "results": str(folder / f"{engine}.npz")}))
        row = {"model": name}
        for engine, made in rounds.items():
            errors = [one["error"] for one in made if "error" in one]
            row[engine] = {"error": errors[0]} if errors else {
                key: statistics.median(one[key] for one in made) for key in made[0]}
        if not any("error" in row[engine] for engine in ENGINES):
            row["ratio"] = row["plait"]["run_ms"] / row["onnxruntime"]["run_ms"]
            row["difference"] = difference(folder)
        return row


def lines_of(row):
    if "ratio" not in row:
        why = "; ".join(f"{engine}: {row[engine]['error']}" for engine in ENGINES if "error" in row[engine])
        return f"{row['model']:<34} NOT RUN: {why}"
    ours, theirs = row["plait"], row["onnxruntime"]
    return (f"{row['model']:<34}{ours['run_ms']:>9.2f}{theirs['run_ms']:>9.2f}{row['ratio']:>8.2f}"
            f"{ours['busy_ms']:>11.2f}{theirs['busy_ms']:>9.2f}"
            f"{ours['create_ms']:>10.0f}{theirs['create_ms']:>7.0f}{ours['peak_mib']:>10.0f}{theirs['peak_mib']:>7.0f}"
            f"{row['difference']:>11.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=[], help="parts of names; all by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="of runs that are timed, by engine and round")
    parser.add_argument("--quick", action="store_true", help="one short round: does it run?")
    parser.add_argument("--json", help="writes all figures to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return child(json.loads(arguments.child))
    if sys.executable != differential.ENVIRONMENT:
        subprocess.run(["sh", str(HERE.parent / "bindings" / "get_onnxruntime.sh")], check=True)
        os.execv(differential.ENVIRONMENT, [differential.ENVIRONMENT, *sys.argv])
    if arguments.quick:
        arguments.rounds, arguments.seconds = 1, 0.2
    folder = Path(os.environ.get("PLAIT_MODELS", ROOT / "models")) / "graphs"
    models = {name: path for name, path in find_models(folder).items()
              if not arguments.models or any(part in name for part in arguments.models)}
    import machine
    facts = {**dict(zip(("cpu", "instruction_sets"), machine.cpu_info())), "busy_before": round(machine.busy_share(), 3)}
    print(f"{facts['cpu']}: {' '.join(facts['instruction_sets'])}; {arguments.threads} threads, medians of {arguments.rounds} rounds")
    if facts["busy_before"] > 0.05:
        print(f"NOT IDLE: others used {facts['busy_before']:.0%} of the processors: compare the ratios only")
    print(f"{'':<34}{'ms a run':>18}{'':>8}{'processor ms':>20}{'ms to create':>17}{'peak MiB':>17}\n"
          f"{'model':<34}{'Plait':>9}{'ORT':>9}{'ratio':>8}{'Plait':>11}{'ORT':>9}{'Plait':>10}{'ORT':>7}{'Plait':>10}{'ORT':>7}"
          f"{'difference':>11}", flush=True)
    rows = []
    for name, path in models.items():
        rows.append(measure(name, path, arguments))
        print(lines_of(rows[-1]), flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"machine": facts, "threads": arguments.threads, "rounds": arguments.rounds,
                                                    "rows": rows}, indent=1) + "\n")
    return 0 if rows and all("ratio" in row for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
