#!/usr/bin/env python3
"""Measures `plait serve` next to llama-server and vLLM: the same weights from one GGUF file, the same prompts and answers.

    ./run bench serve [--quick] [--json F] [--streams 1,8,32,128] [--dtype bf16] [--only load,c,open,overload,cancel]
                      [--peers llama-server,vllm | none]

All servers are there at once, idle but for one, and take turns round by round; figures are medians of rounds. The first time llama-server
is built (ten minutes or more), in .cache/llama-server, and vLLM fetched, in .venv-peers (8 GB). The servers share the processors with what
loads them, whose part is in the figures.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import machine
import serve_load
from serve_load import Sizes, quantile

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODELS = Path(os.environ.get("PLAIT_MODELS", ROOT / "models"))
LLAMA = ROOT / ".cache" / "llama-server"
PEERS = Path(os.environ.get("PLAIT_PEERS", ROOT / ".venv-peers"))
FULL = Sizes((128, 1024), (64, 256), 96)
QUICK = Sizes((32, 256), (16, 64), 24)
# Bytes of the cache of one token in 16 bits: Gemma 3 270M has 18 layers with one head of 256 numbers for keys and for values.
CACHED_BYTES = 18 * 256 * 2 * 2
# Requests of a round: streams x the factor, at least the minimum.
ROUND_FACTOR, ROUND_LEAST = 2, 4


class Server:
    """A server's process, on a port of its own, until close()."""

    def __init__(self, name, words, ready, threads, environment=None):
        self.name, self.log = name, tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.begin = time.monotonic()
        self.process = subprocess.Popen([str(word) for word in words], stdout=self.log, stderr=self.log, start_new_session=True,
                                        env={**os.environ, **(environment or {})})
        self.threads = threads
        try:
            self.port = ready(self)
        except BaseException:
            self.close()
            raise

    def logged(self, pattern, seconds=300):
        """The group of the pattern in the log, once it is there."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = re.search(pattern, Path(self.log.name).read_text(errors="replace"))
            if found:
                return found[found.lastindex or 0]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"{self.name}: its log lacks {pattern}:\n{Path(self.log.name).read_text(errors='replace')[-2000:]}")

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()

    def processes(self):
        """Directories of /proc: the server's process and those it has begun."""
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(status.read_text().rpartition(") ")[2].split()[2]) == self.process.pid:  # the group
                    yield status.parent

    def resident_mib(self):
        """Of all its processes, pages that they share divided among them."""
        return sum(int(re.search(r"Pss:\s*(\d+)", (one / "smaps_rollup").read_text())[1]) for one in self.processes()) / 1024

    def cpu_s(self, threads=None):
        """Seconds of processor of the process, or of its threads of these names."""
        ticks = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                name, _, rest = (task / "stat").read_text().partition(") ")
            except OSError:  # the thread has just ended
                continue
            if threads is None or name.partition("(")[2] in threads:
                ticks += sum(map(int, rest.split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            rows = (line.rpartition(" ") for line in answer.read().decode().splitlines() if not line.startswith("#"))
            return {name: float(value) for name, _, value in rows}

    def metrics_by_name(self):
        """Without labels: there is one model."""
        return {key.partition("{")[0]: value for key, value in self.metrics().items()}

    def metric(self, name):
        return self.metrics_by_name()[name]

    def wait_for(self, name, value, seconds=30):
        deadline = time.monotonic() + seconds
        while self.metric(name) != value:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: {name} is {self.metric(name)} after {seconds} s, not {value}")


def cache_bytes(streams, sizes):
    return streams * (sizes.prompt[1] + sizes.answer[1] + 32) * CACHED_BYTES


def plait(model, streams, sizes, threads, *words):
    def ready(server):
        address = server.logged(r"listening at (\S+)")
        server.logged("ready: ")
        return int(address.rpartition(":")[2])

    return Server("plait", [os.environ["PLAIT"], "serve", model, "--name", "model", "--address", "127.0.0.1:0", "--threads", threads,
                            "--dtype", "bf16", "--cache-dir", "", "--option", f"running={streams}", "--option",
                            f"cache_bytes={cache_bytes(streams, sizes)}", *words], ready, threads)


def llama(model, streams, sizes, threads):
    """Slots for all streams, each with room for the longest call; its cache is f16, its limits are what Plait is given."""
    context = streams * (sizes.prompt[1] + sizes.answer[1] + 32)

    port = free_port()
    return Server("llama-server", [LLAMA / "bin/llama-server", "-m", model, "--port", port, "--host", "127.0.0.1", "-t", threads, "-tb",
                                   threads, "-np", streams, "-c", context, "-b", 2048, "-ub", 512], healthy(port), threads)


def vllm(model, streams, sizes, threads):
    """Its scheduler's defaults, but for `streams`; a cache with room for the longest call of each (its least is 1 GiB)."""
    port, environment = free_port(), PEERS / "vllm/bin"
    gib = max(1, -(-cache_bytes(streams, sizes) // 2**30))
    return Server("vllm", [environment / "vllm", "serve", transformers(model, environment / "python"), "--dtype", "bfloat16", "--port",
                           port, "--host", "127.0.0.1", "--served-model-name", "model", "--max-num-seqs", streams, "--max-model-len",
                           sizes.prompt[1] + sizes.answer[1] + 32], healthy(port), threads,
                  {"VLLM_CPU_KVCACHE_SPACE": str(gib), "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}", "VLLM_NO_USAGE_STATS": "1",
                   "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads)})


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def healthy(port):
    """Waits until the server at the port answers `/health`."""
    def ready(server):
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and server.process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                return port
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"{server.name} is not ready:\n{Path(server.log.name).read_text(errors='replace')[-2000:]}")

    return ready


def transformers(model, python):
    """The directory with the GGUF file's weights as vLLM reads them, made once."""
    out = MODELS / f"{Path(model).stem}-transformers"
    if not out.exists():
        part = out.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        subprocess.run([python, ROOT / "tests/large/gemma_converted.py", "--write", model, part], check=True)
        subprocess.run([ROOT / "samples/gemma3/fetch.sh"], check=True, stdout=sys.stderr)
        for side in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            shutil.copy(MODELS / "gemma-3-270m" / side, part)
        part.rename(out)
    return out


def figures(answers, seconds, busy):
    """Of one round."""
    bad = [one.status for one in answers if one.status != 200]
    if bad:
        raise RuntimeError(f"{len(bad)} of {len(answers)} calls were refused: {sorted(set(bad))}")
    gaps = [gap for one in answers for gap in one.gaps]
    return {"tok_s": sum(one.tokens for one in answers) / seconds, "ttft_p50_s": quantile([one.first for one in answers], 0.5),
            "ttft_p99_s": quantile([one.first for one in answers], 0.99), "itl_p50_s": quantile(gaps, 0.5),
            "itl_p99_s": quantile(gaps, 0.99), "load_share": busy / seconds}


def medians(rounds):
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def requests_of(streams, sizes, seed):
    return serve_load.workload(sizes, max(ROUND_LEAST, ROUND_FACTOR * streams), seed)


def compare(model, streams, options):
    """{server: {figure: median}} of a closed loop."""
    makers = {"plait": plait, "llama-server": llama, "vllm": vllm}
    servers, rounds = [], {}
    try:
        for name in options.servers:
            servers.append(makers[name](model, streams, options.sizes, options.threads))
            serve_load.closed_loop(servers[-1].port, "model", serve_load.workload(Sizes((16, 32), (4, 8), 8), streams, 1), streams)
        for turn in range(options.rounds):
            for server in servers if turn % 2 == 0 else servers[::-1]:
                made = figures(*serve_load.closed_loop(server.port, "model", requests_of(streams, options.sizes, turn), streams))
                rounds.setdefault(server.name, []).append({**made, "resident_mib": server.resident_mib()})
                print(f"{streams} streams, {server.name}: {made['tok_s']:.1f} tok/s", file=sys.stderr, flush=True)
    finally:
        for server in servers:
            server.close()
    return {name: medians(made) for name, made in rounds.items()}


def without_http(model, streams, options):
    """The same closed loop by HTTP and from C, in turn: tokens a second of both, and the processor's share of the server's threads."""
    library = Path(os.environ["PLAIT_LIBRARY"]).parent
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "streams"
        subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", f"-I{ROOT}", HERE / "hosts/streams.c", f"-L{library}", "-lplait",
                        f"-Wl,-rpath,{library}", "-o", program], check=True)
        rates = {"http": [], "c": []}
        server = plait(model, streams, options.sizes, options.threads)
        batch = subprocess.Popen([program, model, str(streams), str(options.threads), str(cache_bytes(streams, options.sizes))],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            for turn in range(options.rounds + 1):  # the first warms up
                requests = requests_of(streams, options.sizes, 100 + turn)
                words = [str(len(requests))]
                for ids, tokens in requests:
                    words += [str(tokens), str(len(ids)), *map(str, ids)]
                batch.stdin.write(" ".join(words) + "\n")
                batch.stdin.flush()
                tokens, seconds = map(float, batch.stdout.readline().split())
                answers, of_http, _ = serve_load.closed_loop(server.port, "model", requests, streams)
                if sum(one.tokens for one in answers) != tokens:
                    raise RuntimeError("C and HTTP made different numbers of tokens")
                if turn:
                    rates["c"].append(tokens / seconds)
                    rates["http"].append(tokens / of_http)
        finally:
            batch.stdin.close()
            batch.wait()
            server.close()
    out = {f"{name}_tok_s": statistics.median(values) for name, values in rates.items()}
    # Of neighbours in time: the machine's other guests change both alike.
    out["cost"] = 1 - statistics.median(http / c for http, c in zip(rates["http"], rates["c"]))
    return out


def many_open(model, options):
    """1,000 streams held open, 32 of which run; then 1,000 connections without a call. All are there at the end."""
    count, hold = 1000, 10 if options.quick else 60
    server = plait(model, 32, options.sizes, options.threads, "--queue", count)
    longest = options.sizes.prompt[1]
    try:
        # Writes all pages of the cache once: what grows after this is something else.
        serve_load.closed_loop(server.port, "model", serve_load.workload(Sizes((longest, longest), (1, 1), 8), 48, 8), 32)
        load = serve_load.Load(server.port, "model")
        for prompt, _ in serve_load.workload(Sizes((16, 32), (8, 8), 8), count, 7):
            load.start((prompt, 100000))  # up to the context
        deadline = time.monotonic() + 60
        while server.metric("plait_requests_running") + server.metric("plait_requests_waiting") < count:
            if time.monotonic() > deadline:
                raise RuntimeError("not all streams arrived within 60 s")
        before, end, over = server.resident_mib(), time.monotonic() + hold, 0
        while (left := end - time.monotonic()) > 0:
            over += load.wait(left)
        failed = [one.status for one in load.answers if one.status != 200]
        out = {"streams": count, "held_s": hold, "lost": len(failed), "ended": over, "resident_before_mib": before,
               "resident_after_mib": server.resident_mib()}
        load.leave()
        server.wait_for("plait_requests_running", 0)
        server.wait_for("plait_requests_waiting", 0)
        now = server.metrics_by_name()
        out["pages_lost"] = now["plait_cache_pages"] - now["plait_cache_pages_free"]
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]
        busy, begin = server.cpu_s(), time.monotonic()
        time.sleep(5)
        out["idle_cpu_share"] = (server.cpu_s() - busy) / (time.monotonic() - begin)
        for one in idle:
            one.close()
        return out
    finally:
        server.close()


def overload(model, options):
    """Capacity by a closed loop, then calls at three times its rate, with a limit of the expected wait."""
    streams, limit_s = 8, 2.0
    sizes = options.sizes
    server = plait(model, streams, sizes, options.threads, "--option", f"queue_wait_ms={1000 * limit_s:.0f}")
    try:
        answers, seconds, _ = serve_load.closed_loop(server.port, "model", serve_load.workload(sizes, 4 * streams, 50), streams)
        capacity = len(answers) / seconds
        alone = quantile([one.first for one in answers], 0.99)
        count = int(3 * capacity * (10 if options.quick else 60))
        answers, seconds = serve_load.open_loop(server.port, "model", serve_load.workload(sizes, count, 51), 3 * capacity, 5)
    finally:
        server.close()
    accepted = [one for one in answers if one.status == 200]
    refused = [one for one in answers if one.status == 429]
    return {"capacity_calls_s": capacity, "offered": len(answers), "accepted": len(accepted), "refused": len(refused),
            "others": len(answers) - len(accepted) - len(refused), "wait_limit_s": limit_s, "ttft_p99_at_capacity_s": alone,
            "accepted_ttft_p99_s": quantile([one.first for one in accepted], 0.99),
            "goodput": len(accepted) / seconds / capacity, "refused_p99_s": quantile([one.total for one in refused], 0.99)}


def cancel(model, options):
    """From the close of eight running streams to their pages being free, while eight others run."""
    server = plait(model, 16, options.sizes, options.threads)
    try:
        waits = []
        for turn in range(5 if options.quick else 30):
            stays, leaves = serve_load.Load(server.port, "model"), serve_load.Load(server.port, "model")
            for i, (prompt, _) in enumerate(serve_load.workload(Sizes((64, 128), (8, 8), 8), 16, turn)):
                (stays if i % 2 else leaves).start((prompt, 512))
            stays.wait_for_first()
            leaves.wait_for_first()
            steps, begin = server.metric("plait_steps_total"), time.perf_counter()
            leaves.leave()
            while (now := server.metrics_by_name())["plait_requests_running"] > 8:
                time.sleep(0.002)
            waits.append((time.perf_counter() - begin, now["plait_steps_total"] - steps))
            stays.leave()
            server.wait_for("plait_requests_running", 0)
        return {"p50_s": quantile([one for one, _ in waits], 0.5), "p99_s": quantile([one for one, _ in waits], 0.99),
                "most_steps": max(steps for _, steps in waits),
                "step_s": server.metric("plait_step_seconds_total") / server.metric("plait_steps_total")}
    finally:
        server.close()


UNITS = {"tok_s": ("throughput", "tok/s", True), "ttft_p50_s": ("first token, p50", "s", False),
         "ttft_p99_s": ("first token, p99", "s", False), "itl_p50_s": ("between tokens, p50", "s", False),
         "itl_p99_s": ("between tokens, p99", "s", False), "resident_mib": ("resident memory", "MiB", False),
         "load_share": ("the load maker's part of a core", "", None)}


def table(row):
    names = list(row["servers"])
    lines = [f"{row['streams']} streams".ljust(36) + "".join(name.rjust(24) for name in names)]
    ours = row["servers"].get("plait", {})
    for key, (label, unit, more) in UNITS.items():
        cells = []
        for name in names:
            value = row["servers"][name][key]
            factor = ""
            if name != "plait" and ours and more is not None and value and ours[key]:
                factor = f" ({ours[key] / value if more else value / ours[key]:.2f}x)"
            cells.append(f"{value:.3g}{factor}" if value < 100 else f"{value:.0f}{factor}")
        lines.append(f"  {label} {f'[{unit}]' if unit else ''}".ljust(36) + "".join(cell.rjust(24) for cell in cells))
    return lines


def text(result):
    facts, lines = result["machine"], []
    lines.append(f"{facts['cpu']}, {facts['cpus']} processors: {' '.join(facts['instruction_sets'])}; {result['threads']} threads")
    if facts["busy_before"] > 0.05:
        lines.append(f"NOT IDLE: others used {facts['busy_before']:.0%} of the processors before")
    sizes = result["sizes"]
    lines.append(f"{result['model']}; prompts of {sizes['prompt'][0]} to {sizes['prompt'][1]} tokens, answers of {sizes['answer'][0]} to "
                 f"{sizes['answer'][1]}; medians of {result['rounds']} rounds; in brackets: how many times better Plait is")
    for row in result.get("load", []):
        lines += ["", *table(row)]
    for name in ("c", "open", "overload", "cancel"):
        for row in result.get(name, []):
            lines += ["", name + ": " + ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                                                  for key, value in row.items())]
    return "\n".join(lines)


def weights(dtype):
    """The GGUF file: Gemma 3 270M as it is fetched, written by llama.cpp's own program in another type."""
    out = MODELS / f"gemma-3-270m-{dtype}.gguf"
    if not out.exists():
        subprocess.run([ROOT / "samples/gemma3/fetch.sh"], check=True, stdout=sys.stderr)
        part = out.with_suffix(".part")
        subprocess.run([LLAMA / "bin/llama-quantize", "--allow-requantize", MODELS / "gemma-3-270m-gguf/gemma-3-270m-q4_k_m.gguf", part,
                        dtype.upper(), str(os.cpu_count())], check=True, stdout=sys.stderr, stderr=subprocess.DEVNULL)
        part.rename(out)
    return out


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="short prompts and answers, one round")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--streams", type=lambda text: [int(one) for one in text.split(",")], default=[1, 8, 32, 128])
    parser.add_argument("--dtype", choices=["bf16", "q8_0"], default="bf16", help="the weights' type, of both servers")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", type=lambda text: text.split(","), default=["load", "c", "open", "overload", "cancel"])
    parser.add_argument("--peers", choices=["none", "llama-server", "vllm", "llama-server,vllm"], default="llama-server,vllm")
    parser.add_argument("--model", type=Path, help="a GGUF file instead of Gemma 3 270M's")
    options = parser.parse_args()
    options.sizes = QUICK if options.quick else FULL
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.servers = ["plait"] + [name for name in options.peers.split(",") if name != "none"]
    return options


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers end with it
    if "llama-server" in options.servers or not options.model:
        subprocess.run([HERE / "peers/setup_peers.sh", "--server"], check=True, stdout=sys.stderr)
    if "vllm" in options.servers:
        subprocess.run([HERE / "peers/setup_peers.sh", "--vllm"], check=True, stdout=sys.stderr)
    model = options.model or weights(options.dtype)
    result = {"machine": machine.describe([]), "threads": options.threads, "model": Path(model).name, "rounds": options.rounds,
              "sizes": {"prompt": options.sizes.prompt, "answer": options.sizes.answer, "shared": options.sizes.shared}}
    if "load" in options.only:
        result["load"] = [{"streams": streams, "servers": compare(model, streams, options)} for streams in options.streams]
    if "c" in options.only:
        result["c"] = [{"streams": streams, **without_http(model, streams, options)} for streams in options.streams]
    for name, measure in (("open", many_open), ("overload", overload), ("cancel", cancel)):
        if name in options.only:
            result[name] = [measure(model, options)]
    print(text(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
