"""What Java and C# cost over C: a token that is pulled, a tensor of 1 MiB in and out; and, with a model, the time from a cold start of
Java to the first token.

usage: hosts.py BUILD [--rounds N] [--model DIRECTORY] [--json FILE]
"""
import argparse
import glob
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def figures(command, model, rounds, environment):
    """Medians of the second half, when compilers of running programs have done what they do."""
    said = subprocess.run([*command, model, str(rounds)], check=True, capture_output=True, text=True,
                          env={**os.environ, **environment}).stdout
    lines = [list(map(int, line.split())) for line in said.splitlines()][rounds // 2:]
    return [statistics.median(column) for column in zip(*lines)]


def commands(build, folder):
    """The program in each language, and the jar."""
    library = os.path.join(build, "bindings/c")
    source = os.path.join(HERE, "hosts")
    program = os.path.join(folder, "pull")
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", f"-I{ROOT}", os.path.join(source, "pull.c"), f"-L{library}", "-lplait",
                    f"-Wl,-rpath,{library}", "-o", program], check=True)
    out = {"C": [program]}
    jars = [path for path in glob.glob(os.path.join(build, "bindings/java/plait/plait-*.jar"))]
    if jars:
        subprocess.run(["javac", "-cp", jars[0], "-d", folder, os.path.join(source, "Pull.java")], check=True)
        out["Java"] = ["java", "-cp", f"{jars[0]}:{folder}", "Pull"]
    csharp = os.path.join(build, "bindings/csharp")
    for file in [*glob.glob(f"{csharp}/*.so*"), f"{csharp}/Plait.dll"]:
        shutil.copy(file, folder)
    subprocess.run(["mcs", f"-r:{folder}/Plait.dll", f"-out:{folder}/Pull.exe", os.path.join(source, "Pull.cs")], check=True)
    out["C#"] = ["mono", os.path.join(folder, "Pull.exe")]
    return out, jars


def first_token(jar, model, folder, environment):
    """Seconds of the whole program that prints one token, the best of three starts."""
    source = os.path.join(folder, "First.java")
    with open(source, "w") as file:
        file.write("class First { public static void main(String[] w) { try (var m = ai.plait.Model.open(java.nio.file.Path.of(w[0])); "
                   "var g = m.generator(new ai.plait.Options().dtype(\"bf16\")); var r = g.submit(\"Once upon a time\", null)) "
                   "{ System.out.println(r.next()); System.out.flush(); Runtime.getRuntime().halt(0); } } }")
    subprocess.run(["javac", "-cp", jar, "-d", folder, source], check=True)
    best = []
    for _ in range(3):
        begin = time.monotonic()
        subprocess.run(["java", "-cp", f"{jar}:{folder}", "First", model], check=True, capture_output=True,
                       env={**os.environ, **environment})
        best.append(time.monotonic() - begin)
    return min(best)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--model", help="of the time to the first token")
    parser.add_argument("--json")
    words = parser.parse_args()
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PLAIT_CACHE_DIR": os.path.join(folder, "cache")}
        by_language, jars = commands(words.build, folder)
        fixture = os.path.join(words.build, "tests/fixtures/gemma3-standard23")
        for language, command in by_language.items():
            token, tensor = figures(command, fixture, words.rounds, environment)
            out[language] = {"token_ns": token, "tensor_ns": tensor}
            over = token - out["C"]["token_ns"]
            print(f"{language:5} token {token:6.0f} ns ({over:+.0f})   1 MiB in and out {tensor / 1000:7.0f} us")
        if words.model and jars:
            out["first_token_s"] = first_token(jars[0], words.model, folder, environment)
            print(f"Java, from a cold start to the first token: {out['first_token_s']:.2f} s")
    if words.json:
        with open(words.json, "w") as file:
            json.dump(out, file, indent=1)


if __name__ == "__main__":
    main()
