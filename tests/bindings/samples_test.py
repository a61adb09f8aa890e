"""Each idea of samples/ prints the same in C, C++, Java, C# and Python, and so do the programs that the pages of docs begin with. Java's
and Python's are left out, and that is said, where there is no jar or no package.
The one of pipelines, in C and Java, also has the losses of one rank. Those of servers, in Java, C# and Python, answer a call alike, and
end with their input.

usage: samples_test.py ROOT BUILD FIXTURES
"""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from limits import HANG_S

MODEL = "gemma3-standard23"
GREEDY_MODEL = "llama-untied-optimum18"  # its generation_config.json samples nothing
TEXTS = ("the river and the sea", "the hills")
# C, C++ and Python (of "session": session_tensors), then Java's and C#'s name; what it is given.
SAMPLES = (
    ("batch", "Batch", (MODEL, *TEXTS)),
    ("embeddings", "Embeddings", (MODEL, *TEXTS)),
    ("session", "SessionTensors", ("zoo/bert/plain.onnx", "last_hidden_state", "5", "6", "7")),
    ("host_sampling", "HostSampling", (MODEL, TEXTS[0])),
    ("memory", "Memory", (MODEL, TEXTS[0])),
    ("three_steps", "ThreeSteps", (MODEL, TEXTS[0])),
    ("sharded", "Sharded", (MODEL, "tensor=2", TEXTS[0])),
    ("stream", "Stream", (GREEDY_MODEL, TEXTS[0])),
)


# In C and Java: 3D parallel ranks, and two stages on one rank, whose losses are the same but for rounding.
PIPELINE = ("pipeline", "Pipeline", ((MODEL, "data=2,pipeline=2,tensor=2", "1f1b"), (MODEL, "", "interleaved:2")))


def said_by(command, words, environment):
    done = subprocess.run([*command, *words], capture_output=True, timeout=HANG_S, env={**os.environ, **environment, "LC_ALL": "C.UTF-8"})
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.returncode}: {done.stderr.decode(errors='replace')[-1500:]}")
    return done.stdout.decode()


def csharp(source, build, name, folder):
    assembly = os.path.join(build, "bindings/csharp/Plait.dll")
    if not os.path.exists(os.path.join(folder, "Plait.dll")):
        for file in glob.glob(os.path.join(build, "bindings/csharp/*.so*")) + [assembly]:
            shutil.copy(file, folder)
    program = os.path.join(folder, name + ".exe")
    subprocess.run(["mcs", "-langversion:7.2", "-warnaserror", "-r:" + assembly, "-out:" + program,
                    source], check=True)
    return ["mono", program]


def java(source, jar):
    return ["java", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-cp", jar, source]


def python(root, build):
    """The interpreter with the package; nothing if that was not built."""
    package = os.path.join(build, "bindings/python")
    if not os.path.exists(os.path.join(package, "package.stamp")):
        print("Python is left out: there is no package")
        return None
    return ["env", "PYTHONPATH=" + package, "PYTHONDONTWRITEBYTECODE=1", os.path.join(root, ".cache/python/bin/python")]


def first_program(root, page, language, path):
    """Writes the first program in a language that a page has."""
    with open(os.path.join(root, "docs", page)) as file, open(path, "w") as out:
        out.write(re.search(rf"^```{language}\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)[1])
    return path


def quick_starts(root, build, jars, interpreter, folder):
    """Of each page, built as it stands: {page's language: command}."""
    def source(page, language, name):
        return first_program(root, page, language, os.path.join(folder, name))

    library = os.path.join(build, "bindings/c")
    flags = ["-Wall", "-Wextra", "-Werror", "-I" + os.path.join(root, "bindings/c"), os.path.join(library, "libplait.so"),
             "-Wl,-rpath," + library]
    in_c, in_cpp = os.path.join(folder, "start_c"), os.path.join(folder, "start_cpp")
    subprocess.run(["cc", "-std=c11", source("c.md", "c", "start.c"), *flags, "-o", in_c], check=True)
    subprocess.run(["c++", "-std=c++17", source("c.md", "cpp", "start.cpp"), *flags, "-o", in_cpp], check=True)
    out = {"C": [in_c], "C++": [in_cpp], "C#": csharp(source("csharp.md", "csharp", "Stream.cs"), build, "QuickStart", folder)}
    if jars:
        out["Java"] = java(source("java.md", "java", "Stream.java"), jars[0])
    if interpreter:
        out["Python"] = [*interpreter, source("python.md", "python", "start.py")]
    return out


def pipelines_agree(root, build, fixtures, jars, cache):
    in_c, name, runs = PIPELINE
    commands = [[os.path.join(build, "samples/c/plait_sample_" + in_c)]]
    commands += [java(os.path.join(root, f"samples/java/{name}.java"), jar) for jar in jars[:1]]
    losses = []
    for command in commands:
        for model, *words in runs:
            said = said_by(command, (os.path.join(fixtures, model), *words), cache)
            losses.append([float(line.rpartition(" ")[2]) for line in said.splitlines()])
    falling = all(len(one) == 3 and one[0] > one[1] > one[2] for one in losses)
    return falling and all(abs(a - b) < 2e-3 for one in losses for a, b in zip(one, losses[0]))


def answer_of(command, model, environment):
    """What a sample's server makes of a prompt, whole and streamed."""
    server = subprocess.Popen([*command, model, "127.0.0.1:0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              env={**os.environ, **environment})
    try:
        address = server.stdout.readline().decode().strip()
        out = []
        for stream in (False, True):
            body = {"model": "model", "prompt": TEXTS[0], "max_tokens": 8, "temperature": 0, "stream": stream}
            for _ in range(600):  # 503 until the model is loaded
                try:
                    call = urllib.request.Request(address + "/v1/completions", json.dumps(body).encode())
                    with urllib.request.urlopen(call, timeout=HANG_S) as answer:
                        text = answer.read().decode()
                    break
                except urllib.error.HTTPError as error:
                    if error.code != 503:
                        raise
                    time.sleep(0.05)
            parts = re.findall(r"^data: (\{.*)$", text, re.MULTILINE) if stream else [text]
            out.append("".join(json.loads(part)["choices"][0]["text"] for part in parts))
        server.stdin.close()
        if server.wait(60) != 0 or out[0] != out[1]:
            raise AssertionError(f"{' '.join(command)}: {server.returncode}, {out}")
        return out[0]
    finally:
        server.kill()
        server.wait()


def servers_agree(root, build, fixtures, jars, interpreter, folder, cache):
    commands = [csharp(os.path.join(root, "samples/csharp/Serve.cs"), build, "Serve", folder)]
    commands += [java(os.path.join(root, "samples/java/Serve.java"), jar) for jar in jars[:1]]
    commands += [[*interpreter, os.path.join(root, "samples/python/serve.py")]] if interpreter else []
    said = [answer_of(command, os.path.join(fixtures, GREEDY_MODEL), cache) for command in commands]
    return said[0].strip() and len(set(said)) == 1


def main():
    root, build, fixtures = sys.argv[1:]
    jars = [path for path in glob.glob(os.path.join(build, "bindings/java/plait/plait-*.jar"))]
    if not jars:
        print("Java is left out: there is no jar")
    interpreter = python(root, build)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        cache = {"PLAIT_CACHE_DIR": os.path.join(folder, "cache")}
        for in_c, name, words in SAMPLES:
            words = (os.path.join(fixtures, words[0]), *words[1:])
            commands = {"C#": csharp(os.path.join(root, f"samples/csharp/{name}.cs"), build, name, folder),
                        "C++": [os.path.join(build, "samples/cpp/plait_sample_cpp_" + in_c)]}
            if in_c != "sharded":  # in C it is for processes, too, and takes other words
                commands["C"] = [os.path.join(build, "samples/c/plait_sample_" + in_c)]
            if jars:
                commands["Java"] = java(os.path.join(root, f"samples/java/{name}.java"), jars[0])
            if interpreter:
                in_python = "session_tensors" if in_c == "session" else in_c
                commands["Python"] = [*interpreter, os.path.join(root, f"samples/python/{in_python}.py")]
            said = {language: said_by(command, words, cache) for language, command in commands.items()}
            if not all(text.strip() for text in said.values()) or len(set(said.values())) != 1:
                wrong += 1
                print(name, said)
        starts = {language: said_by(command, (os.path.join(fixtures, GREEDY_MODEL), TEXTS[0]), cache)
                  for language, command in quick_starts(root, build, jars, interpreter, folder).items()}
        if len(set(starts.values())) != 1 or not starts["C"].strip():
            wrong += 1
            print("the first programs of docs differ:", starts)
        if not pipelines_agree(root, build, fixtures, jars, cache):
            wrong += 1
            print("the samples of pipelines differ")
        if not servers_agree(root, build, fixtures, jars, interpreter, folder, cache):
            wrong += 1
            print("the samples of servers differ")
    print(f"{len(SAMPLES) + 3} samples, {wrong} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
