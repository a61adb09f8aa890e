"""What Java and C# cost over C: a token that is pulled, and what garbage it leaves; a tensor of 1 MiB in and out. With a model also the
time from a cold start of Java to the first token; with the model and DJL_SERVING_HOME, what DJL Serving gives to many clients of what the
same batch gives from C.

usage: hosts.py BUILD [--rounds N] [--model DIRECTORY] [--clients N] [--tokens N] [--json FILE]
"""
import argparse
import glob
import json
import os
import selectors
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SOURCE = os.path.join(HERE, "hosts")
sys.path.append(os.path.join(ROOT, "tests/bindings"))
import djl_serving  # noqa: E402


def program(build, name, folder):
    library = os.path.join(build, "bindings/c")
    out = os.path.join(folder, name)
    subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", f"-I{ROOT}", os.path.join(SOURCE, name + ".c"), f"-L{library}", "-lplait",
                    f"-Wl,-rpath,{library}", "-o", out], check=True)
    return out


def columns(command, model, rounds):
    """Medians of the second half, when compilers of running programs have done what they do."""
    said = subprocess.run([*command, model, str(rounds)], check=True, capture_output=True, text=True).stdout
    lines = [list(map(int, line.split())) for line in said.splitlines()][rounds // 2:]
    return [statistics.median(column) for column in zip(*lines)]


def of_c(build, folder, model, rounds):
    token, tensor = columns([program(build, "pull", folder)], model, rounds)
    return {"token_ns": token, "tensor_ns": tensor}


def of_csharp(build, folder, model, rounds):
    csharp = os.path.join(build, "bindings/csharp")
    for file in [*glob.glob(f"{csharp}/*.so*"), f"{csharp}/Plait.dll"]:
        shutil.copy(file, folder)
    subprocess.run(["mcs", f"-r:{folder}/Plait.dll", f"-out:{folder}/Pull.exe", os.path.join(SOURCE, "Pull.cs")], check=True)
    token, tensor, garbage = columns(["mono", os.path.join(folder, "Pull.exe")], model, rounds)
    return {"token_ns": token, "tensor_ns": tensor, "token_bytes": garbage}


def of_java(build, folder, model, jar, environment):
    """By JMH; `nothing` is what only the requests allocate."""
    harness = os.path.join(build, "bindings/java/jmh")
    if not glob.glob(os.path.join(harness, "*.jar")):
        subprocess.run(["mvn", "-B", "-q", "-f", SOURCE, "dependency:copy-dependencies", f"-DoutputDirectory={os.path.abspath(harness)}"],
                       check=True, stdout=sys.stderr)
    path = ":".join([jar, folder, *glob.glob(os.path.join(harness, "*.jar"))])
    subprocess.run(["javac", "-cp", path, "-d", folder, os.path.join(SOURCE, "Pull.java")], check=True)
    result = os.path.join(folder, "jmh.json")
    subprocess.run(["java", "-cp", path, f"-Dplait.model={model}", "org.openjdk.jmh.Main", "-f", "1", "-wi", "5", "-w", "1", "-i", "5",
                    "-r", "1", "-prof", "gc", "-rf", "json", "-rff", result], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, **environment})
    with open(result) as file:
        by_name = {one["benchmark"].split(".")[-1]: one for one in json.load(file)}

    def garbage(name):
        return by_name[name]["secondaryMetrics"]["gc.alloc.rate.norm"]["score"]

    return {"token_ns": by_name["token"]["primaryMetric"]["score"], "tensor_ns": by_name["tensor"]["primaryMetric"]["score"],
            "token_bytes": garbage("token") - garbage("nothing")}


def first_token(jar, model, folder, environment):
    """Seconds of the whole program that prints one token: the median of five starts, the library copied from the jar before."""
    source = os.path.join(folder, "First.java")
    with open(source, "w") as file:
        file.write("class First { public static void main(String[] w) { try (var m = ai.plait.Model.open(java.nio.file.Path.of(w[0])); "
                   "var g = m.generator(new ai.plait.Options().dtype(\"bf16\")); var r = g.submit(\"Once upon a time\", null)) "
                   "{ System.out.println(r.next()); System.out.flush(); Runtime.getRuntime().halt(0); } } }")
    subprocess.run(["javac", "-cp", jar, "-d", folder, source], check=True)
    times = []
    for _ in range(6):
        begin = time.monotonic()
        subprocess.run(["java", "-cp", f"{jar}:{folder}", "First", model], check=True, capture_output=True,
                       env={**os.environ, **environment})
        times.append(time.monotonic() - begin)
    return statistics.median(times[1:])


def served(server, clients, tokens):
    """Tokens and seconds of clients that stream at once, from the first one's request to the last one's token."""
    selector = selectors.DefaultSelector()
    begin, seen = time.monotonic(), {}
    for i in range(clients):
        body = {"inputs": f"Story {i}: once upon a time there was a", "stream": True,
                "parameters": {"max_new_tokens": tokens, "ignore_eos": True}}
        connection = server.send("POST", "/predictions/model", body)
        selector.register(connection, selectors.EVENT_READ)
        seen[connection] = b""
    while selector.get_map():
        for key, _ in selector.select():
            seen[key.fileobj] += key.fileobj.recv(1 << 16)
            if seen[key.fileobj].endswith(b"0\r\n\r\n"):
                selector.unregister(key.fileobj)
    seconds = time.monotonic() - begin
    for connection in seen:
        connection.close()
    return sum(data.count(b'"token":') for data in seen.values()), seconds


def serving(build, folder, model, clients, tokens, rounds):
    """Tokens a second by DJL Serving and from C, in turn; medians."""
    threads = len(os.sched_getaffinity(0))
    batch = subprocess.Popen([program(build, "batch", folder), model, str(clients), str(tokens), str(threads)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    server = djl_serving.Server(build, {"model": (model, [f"option.plait.threads={threads}",
                                                          f"option.max_rolling_batch_size={clients}"])}, folder)
    rates = {"c": [], "djl_serving": []}
    try:
        for round in range(rounds + 1):  # the first is for the compilers
            batch.stdin.write("\n")
            batch.stdin.flush()
            of_batch, seconds = map(float, batch.stdout.readline().split())
            of_server, server_seconds = served(server, clients, tokens)
            assert of_batch == of_server == clients * tokens, (of_batch, of_server)
            if round > 0:
                rates["c"].append(of_batch / seconds)
                rates["djl_serving"].append(of_server / server_seconds)
    finally:
        batch.stdin.close()
        batch.wait()
        server.close()
    return {name: statistics.median(values) for name, values in rates.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--model", help="of the time to the first token, and of DJL Serving")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=64, help="of each client")
    parser.add_argument("--only", choices=["pull", "first", "serving"])
    parser.add_argument("--json")
    words = parser.parse_args()
    build = os.path.abspath(words.build)
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PLAIT_CACHE_DIR": os.path.join(folder, "cache")}
        jar = next((path for path in djl_serving.jars(build) if "djl" not in os.path.basename(path)), None)
        if words.only in (None, "pull"):
            fixture = os.path.join(build, "tests/fixtures/gemma3-standard23")
            out["C"] = of_c(build, folder, fixture, words.rounds)
            if jar:
                out["Java"] = of_java(build, folder, fixture, jar, environment)
            out["C#"] = of_csharp(build, folder, fixture, words.rounds)
            for language, got in out.items():
                print(f"{language:5} token {got['token_ns']:6.0f} ns ({got['token_ns'] - out['C']['token_ns']:+.0f})   "
                      f"1 MiB in and out {got['tensor_ns'] / 1000:7.0f} us"
                      + (f"   {got['token_bytes']:.0f} bytes of garbage a token" if "token_bytes" in got else ""))
        if words.model and jar and words.only in (None, "first"):
            out["first_token_s"] = first_token(jar, words.model, folder, environment)
            print(f"Java, from a cold start to the first token: {out['first_token_s']:.2f} s")
        if words.model and djl_serving.installation() and words.only in (None, "serving"):
            rates = out["serving"] = serving(build, folder, os.path.abspath(words.model), words.clients, words.tokens, 3)
            print(f"{words.clients} clients of DJL Serving: {rates['djl_serving']:.0f} tokens/s, the same batch from C {rates['c']:.0f}: "
                  f"{100 * rates['djl_serving'] / rates['c']:.1f} %")
    if words.json:
        with open(words.json, "w") as file:
            json.dump(out, file, indent=1)


if __name__ == "__main__":
    main()
