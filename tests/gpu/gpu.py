#!/usr/bin/env python3
"""Everything that needs a GPU, in one command, and a report of it.

usage: gpu.py BUILD [--out DIR] [--emulated] [--again] [--bundle FILE] [STEP...]

BUILD is a release build (build/release), or what a bundle contains. Steps, all without one named:

  machine    what there is: driver, devices, memory
  ceilings   what the devices reach at best: copies, launches, tensor cores, access of one to another
  kernels    each kernel against its definition on the processor (unit.cuda, on the device)
  tokens     fixtures of all kinds of decoders: greedy tokens of the device and of the processor are equal
  meshes     the same over two devices
  soak       1,000 requests, 24 at a time, a third of them cancelled: the others' tokens are those of each by itself, nothing is left
  speed      tokens a second, of the models in PLAIT_MODELS (default: models)
  sanitizer  kernels under compute-sanitizer, where that is installed
  profile    the kernels that a step spends its time in, with nsys, where that is installed

A step that has passed is not run again unless --again; an interrupted run continues where it was. The report is DIR/report.txt,
report.json and report.html, DIR is gpu-report without --out. --emulated runs the steps on the emulated driver, which shows nothing of
speed. --bundle packs what is needed, for a machine without network or compiler: tar xf FILE; ./gpu/run.

Exit status: 0 no step failed, 1 one has, 2 wrong usage, 77 there is no GPU.
"""
import argparse
import hashlib
import html
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time

FAMILIES = ("gemma3-standard23", "llama-standard23", "gpt2-optimum18", "qwen2-optimum18", "qwen3-dynamo23",
            "zoo/mixtral/dynamo18", "zoo/gpt_oss/dynamo18", "zoo/lfm2/hf5", "zoo/gptj/dynamo18", "zoo/deepseek_v3/optimum18",
            "zoo/phi3_long/dynamo18", "zoo/gemma2/genai_int4")
# What a bundle contains, by its place in the build.
PACKED = ("bindings/cli/plait", "bindings/c/libplait.so.0", "bindings/c/plait_cuda.so", "bindings/c/plait_cuda_emulated.so",
          "tests/cuda_test", "tests/gpu_ceilings", "tests/gpu_soak", *(f"tests/fixtures/{name}" for name in FAMILIES))


class Failed(Exception):
    """A step that has found something; its text is what."""


class LeftOut(Exception):
    """What a step needs is not there; its text is why."""


class Machine:
    """The build under test, and the device."""

    def __init__(self, build, emulated, out):
        self.build, self.emulated, self.out = os.path.abspath(build), emulated, out
        self.plugin = self.path("bindings/c/plait_cuda_emulated.so" if emulated else "bindings/c/plait_cuda.so")
        libraries = self.path("bindings/c") + os.pathsep + os.environ.get("LD_LIBRARY_PATH", "")
        self.environment = dict(os.environ, LD_LIBRARY_PATH=libraries)
        if emulated:
            self.environment.update(PLAIT_EMULATE_DEVICES="2", PLAIT_EMULATE_BYTES=str(2 << 30))

    def path(self, name):
        return os.path.join(self.build, name)

    def run(self, name, words, limit_s, **environment):
        """Runs a command, its output in OUT/NAME.log; returns what it has written to stdout."""
        with open(os.path.join(self.out, name + ".log"), "w", encoding="utf-8", errors="replace") as log:
            try:
                done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                                      timeout=limit_s, env={**self.environment, **environment}, check=False)
            except subprocess.TimeoutExpired as late:
                raise Failed(f"{name}: no end after {limit_s} s") from late
            log.write(f"{' '.join(words)}\n{done.stdout}\n{done.stderr}")
        if done.returncode:
            raise Failed(f"{name}: exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-400:]}")
        return done.stdout

    def generate(self, name, model, device, count, *words):
        """What `plait generate --json` returns of a fixed prompt."""
        options = ["--option", "device=" + device, "--option", "cache_bytes=64M"]
        if device != "cpu":
            options += ["--option", "cuda_plugin=" + self.plugin]
        return json.loads(self.run(name, [self.path("bindings/cli/plait"), "generate", model, "--ids", "5,3,9,14,3", "--max-tokens",
                                          str(count), "--temperature", "0", "--ignore-eos", "--json", *options, *words], 600))

    @property
    def device(self):
        return "emulated" if self.emulated else "cuda"

    def doctor(self):
        words = [self.path("bindings/cli/plait"), "doctor", "--json", "--option", "cuda_plugin=" + self.plugin]
        return json.loads(self.run("doctor", words, 60))


def step_machine(machine):
    facts = machine.doctor()
    lines = [f"processor: {facts['processor']['name']}", f"driver: {facts['cuda']['driver']}"]
    lines += [f"{one['device']}: {one['name']}, {one['bytes'] / 2 ** 30:.0f} GiB" for one in facts["cuda"]["devices"]]
    if not machine.emulated and shutil.which("nvidia-smi"):
        query = "name,driver_version,clocks.max.sm,clocks.max.mem,ecc.mode.current,power.limit"
        lines += machine.run("nvidia_smi", ["nvidia-smi", f"--query-gpu={query}", "--format=csv"], 60).splitlines()
    return {"lines": lines, "facts": facts}


def step_ceilings(machine):
    words = [machine.path("tests/gpu_ceilings"), machine.plugin, str((1 << 17) if machine.emulated else (1 << 28))]
    found = json.loads(machine.run("ceilings", words, 300))
    lines = [f"emulated: no timing; {len(found['devices'])} devices, {len(found['peers'])} ways between them"]
    if machine.emulated:
        return {"lines": lines, "figures": found}
    lines = []
    for one in found["devices"]:
        copies, launches, cores = one["copies"], one["launches"], one["tensor_cores_per_s"]
        lines.append(f"cuda:{one['device']}: memory {copies['device_bytes_per_s'] / 1e9:,.0f} GB/s read and written, from the host "
                     f"{copies['to_device_bytes_per_s'] / 1e9:.1f}, to it {copies['to_host_bytes_per_s'] / 1e9:.1f}; a launch "
                     f"{launches['launch_s'] * 1e6:.2f} us, in a graph {launches['launch_in_graph_s'] * 1e6:.2f}; mma.sync "
                     + ", ".join(f"{dtype} {rate / 1e12:,.1f} TFLOP/s" for dtype, rate in cores.items()))
    for one in found["peers"]:
        rate = f"{one['bytes_per_s'] / 1e9:,.0f} GB/s" if one["access"] else "no access"
        lines.append(f"cuda:{one['from']} to cuda:{one['to']}: {rate}")
    return {"lines": lines, "figures": found}


def step_kernels(machine):
    results = os.path.join(machine.out, "kernels.json")
    machine.run("kernels", [machine.path("tests/cuda_test"), "--gtest_brief=1", "--gtest_output=json:" + results], 900,
                PLAIT_TEST_PLUGIN=machine.plugin)
    with open(results, encoding="utf-8") as file:
        found = json.load(file)
    os.remove(results)
    return {"lines": [f"{found['tests']} tests of kernels on the device, {found['failures']} failures"]}


def compare(machine, device, *words):
    lines, wrong = [], []
    for name in FAMILIES:
        model, log = machine.path("tests/fixtures/" + name), name.replace("/", "_")
        expected = machine.generate(f"tokens_{log}_cpu", model, "cpu", 16)["ids"]
        got = machine.generate(f"tokens_{log}", model, device, 16, *words)["ids"]
        lines.append(f"{name}: {'equal' if got == expected else f'{got}, and {expected} on the processor'}")
        if got != expected:
            wrong.append(name)
    if wrong:
        raise Failed("other tokens than the processor's: " + ", ".join(wrong) + "\n" + "\n".join(lines))
    return {"lines": lines}


def step_tokens(machine):
    return compare(machine, machine.device)


def step_meshes(machine):
    if len(machine.doctor()["cuda"]["devices"]) < 2:
        raise LeftOut("there is one device")
    return compare(machine, machine.device, "--mesh", "tensor=2")


def step_soak(machine):
    lines = []
    # Of the emulated device a few: it takes a second for each.
    for name, count in (("llama-standard23", 24 if machine.emulated else 1000), ("zoo/gpt_oss/dynamo18", 1000)):
        if machine.emulated and "/" in name:
            continue
        words = [machine.path("tests/gpu_soak"), machine.path("tests/fixtures/" + name), str(count), "device=" + machine.device,
                 "cuda_plugin=" + machine.plugin, "cache_bytes=16M"]
        lines.append(f"{name}: " + machine.run("soak_" + name.replace("/", "_"), words, 600).strip())
    return {"lines": lines}


def step_speed(machine):
    if machine.emulated:
        raise LeftOut("an emulated device shows nothing of speed")
    folder = os.environ.get("PLAIT_MODELS", "models")
    models = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    lines, figures = [], []
    for name in models:
        if not os.path.isdir(os.path.join(folder, name)) and not name.endswith(".gguf"):
            continue
        path = os.path.join(folder, name)
        for device in ("cpu", machine.device):
            timings = machine.generate(f"speed_{name}_{device}", path, device, 128)["timings"]
            figures.append({"model": name, "device": device, **timings})
            lines.append(f"{name}, {device}: {timings['decode_tokens_per_s']:.0f} tokens/s, first token "
                         f"{timings['time_to_first_token_s'] * 1e3:.1f} ms, loading {timings['load_s']:.1f} s")
    if not lines:
        raise LeftOut(f"there are no models in {folder}")
    return {"lines": lines, "figures": figures}


def step_sanitizer(machine):
    tool = shutil.which("compute-sanitizer")
    if machine.emulated or not tool:
        raise LeftOut("compute-sanitizer " + ("does not know emulated devices" if machine.emulated else "is not installed"))
    lines = []
    for check in ("memcheck", "racecheck", "initcheck", "synccheck"):
        machine.run("sanitizer_" + check, [tool, "--tool", check, "--error-exitcode", "9", machine.path("tests/cuda_test"),
                                           "--gtest_brief=1", "--gtest_filter=*_9:*Sample*:*Attention*"], 900,
                    PLAIT_TEST_PLUGIN=machine.plugin)
        lines.append(check + ": nothing found")
    return {"lines": lines}


def step_profile(machine):
    tool = shutil.which("nsys")
    if machine.emulated or not tool:
        raise LeftOut("nsys " + ("does not know emulated devices" if machine.emulated else "is not installed"))
    report = os.path.join(machine.out, "profile")
    machine.run("profile", [tool, "profile", "--force-overwrite=true", "--cuda-graph-trace=node", "-o", report,
                            machine.path("bindings/cli/plait"), "generate", machine.path("tests/fixtures/" + FAMILIES[0]), "--ids",
                            "5,3,9", "--max-tokens", "64", "--option", "device=cuda", "--option", "cuda_plugin=" + machine.plugin], 300)
    table = machine.run("profile_kernels", [tool, "stats", "-q", "-r", "cuda_gpu_kern_sum", report + ".nsys-rep"], 300)
    return {"lines": table.splitlines()[:30]}


STEPS = {name[len("step_"):]: step for name, step in list(globals().items()) if name.startswith("step_")}


def key_of(machine):
    """Changes when what is tested does."""
    found = hashlib.sha256(str(machine.emulated).encode())
    for name in PACKED[:7]:
        if os.path.exists(machine.path(name)):
            status = os.stat(machine.path(name))
            found.update(f"{name} {status.st_size} {status.st_mtime_ns}".encode())
    return found.hexdigest()


def write_report(out, results, emulated):
    title = "Plait on an emulated device" if emulated else "Plait on a GPU"
    with open(os.path.join(out, "report.json"), "w", encoding="utf-8") as file:
        json.dump({"emulated": emulated, "steps": results}, file, indent=1)
    text, page = [title, ""], [f"<!doctype html><meta charset=utf-8><title>{title}</title><h1>{title}</h1>"]
    for name, result in results.items():
        text += [f"{name}: {result['status']}, {result['seconds']:.0f} s", *("  " + line for line in result["lines"]), ""]
        lines = html.escape("\n".join(result["lines"]))
        page.append(f"<h2>{name}: {result['status']}</h2><p>{result['seconds']:.0f} s<pre>{lines}</pre>")
    for name, lines in (("report.txt", text), ("report.html", page)):
        with open(os.path.join(out, name), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


def run_steps(machine, names, again):
    """Runs what has not passed before; writes the report after each step."""
    path, key = os.path.join(machine.out, "report.json"), key_of(machine)
    results = {}
    if os.path.exists(path) and not again:
        with open(path, encoding="utf-8") as file:
            results = {name: one for name, one in json.load(file)["steps"].items() if one["key"] == key}
    for name in names:
        if results.get(name, {}).get("status") == "passed":
            print(f"gpu: {name}: passed before")
            continue
        print(f"gpu: {name} ...", flush=True)
        begin = time.monotonic()
        try:
            result = {"status": "passed", **STEPS[name](machine)}
        except LeftOut as why:
            result = {"status": "left out", "lines": [str(why)]}
        except Failed as failed:
            result = {"status": "failed", "lines": str(failed).splitlines()}
        results[name] = {**result, "seconds": time.monotonic() - begin, "key": key}
        print(f"gpu: {name}: {result['status']}: {result['lines'][0] if result['lines'] else ''}")
        write_report(machine.out, results, machine.emulated)
    return all(results[name]["status"] != "failed" for name in names)


def write_bundle(build, path):
    missing = [name for name in PACKED if not os.path.exists(os.path.join(build, name))]
    if missing:
        sys.exit("gpu: the build lacks " + ", ".join(missing))
    run = "#!/bin/sh\nexec python3 \"$(dirname \"$0\")/gpu.py\" \"$(dirname \"$0\")/build\" \"$@\"\n"
    with tarfile.open(path, "w:gz", dereference=True) as archive:
        for name in PACKED:
            archive.add(os.path.join(build, name), "gpu/build/" + name)
        archive.add(os.path.abspath(__file__), "gpu/gpu.py")
        script = os.path.join(build, "gpu_run")
        with open(script, "w", encoding="utf-8") as file:
            file.write(run)
        os.chmod(script, 0o755)
        archive.add(script, "gpu/run")
        os.remove(script)
    print(f"gpu: {path}: {os.path.getsize(path) / 2 ** 20:.0f} MiB")


def main():
    parser = argparse.ArgumentParser(prog="gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--out", default="gpu-report")
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--bundle")
    parser.add_argument("steps", nargs="*", metavar="STEP")
    given = parser.parse_intermixed_args()
    if unknown := [name for name in given.steps if name not in STEPS]:
        parser.error(f"no step is called {unknown[0]}; there are: {' '.join(STEPS)}")
    if given.bundle:
        return write_bundle(given.build, given.bundle)
    os.makedirs(given.out, exist_ok=True)
    machine = Machine(given.build, given.emulated, given.out)
    cuda = machine.doctor()["cuda"]
    if not cuda["available"]:
        print("gpu: there is no GPU: " + cuda["reason"])
        return 77
    passed = run_steps(machine, given.steps or list(STEPS), given.again)
    print(f"gpu: the report is {os.path.join(given.out, 'report.txt')}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
