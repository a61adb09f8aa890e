"""What cmake --install lays down is enough: a program finds it by CMake and by pkg-config, in C and C++, shared and static, wherever the
tree was moved to; and it shows no symbol but its own, so that a host with another protobuf is safe.

usage: install_test.py BUILD FIXTURES SCENARIOS.c SCENARIOS.txt CMAKE
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

from limits import HANG_S

PROJECT = """cmake_minimum_required(VERSION 3.16)
project(host C CXX)
find_package(Plait 0.1 REQUIRED)
add_executable(shared host.cpp)
target_link_libraries(shared PRIVATE Plait::plait)
add_executable(static host.cpp)
target_link_libraries(static PRIVATE Plait::static)
"""
# A protobuf of its own, at least by name: were the library's visible, one of the two would be called by both.
HOST = """#include <plait.hpp>
#include <cstdio>
namespace google { namespace protobuf { namespace internal {
__attribute__((used)) void VerifyVersion(int, int, const char*) { std::puts("the host's protobuf was called"); }
}}}
int main(int, char** words) {
  plait_api::Model model(words[1]);
  plait_api::Generator generator(model, plait_api::Options().set("threads", 1).set("cache_bytes", "4M"));
  plait_api::Request request = generator.submit({323, 352, 460}, plait_api::Options().set("temperature", "0").set("max_tokens", 4));
  plait_event event{};
  while (request.next(event) && event.kind != PLAIT_EVENT_END) std::printf("%d ", event.token);
}
"""


def run(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def by_cmake(cmake, folder, prefix, model):
    for name, text in (("CMakeLists.txt", PROJECT), ("host.cpp", HOST)):
        with open(os.path.join(folder, name), "w") as file:
            file.write(text)
    build = os.path.join(folder, "build")
    run(cmake, "-S", folder, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}")
    run(cmake, "--build", build)
    said = {run(os.path.join(build, name), model) for name in ("shared", "static")}
    assert len(said) == 1 and len(said.pop().split()) == 4, said


def by_pkg_config(folder, prefix, library, scenarios, fixtures, lists):
    # The words of plait.pc, so that no pkg-config has to be there.
    with open(os.path.join(library, "pkgconfig/plait.pc")) as file:
        lines = dict(re.findall(r"^(\w+(?:\.\w+)?)[=:] *(.*)$", file.read(), re.MULTILINE))
    values = {"pcfiledir": os.path.join(library, "pkgconfig")}
    for name in ("prefix", "libdir", "includedir"):
        values[name] = re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], lines[name])
    words = re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], f"{lines['Cflags']} {lines['Libs']}").split()
    program = os.path.join(folder, "scenarios")
    # The tests include headers by their place in the repository.
    os.makedirs(os.path.join(folder, "bindings/c"))
    shutil.copy(os.path.join(prefix, "include/plait.h"), os.path.join(folder, "bindings/c"))
    root = os.path.dirname(os.path.dirname(os.path.dirname(scenarios)))
    run("cc", "-std=c11", "-D_GNU_SOURCE", scenarios, "-I" + folder, "-I" + root, *words, "-lm", "-o", program)
    run(program, fixtures, lists, env={**os.environ, "LD_LIBRARY_PATH": library})


def main():
    build, fixtures, scenarios, lists, cmake = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        first, prefix = os.path.join(folder, "first"), os.path.join(folder, "moved")
        run(cmake, "--install", build, "--prefix", first)
        os.rename(first, prefix)
        library = os.path.dirname(next(os.path.join(place, "libplait.so") for place, _, files in os.walk(prefix)
                                       if "libplait.so" in files))
        for name in ("cmake", "pkg"):
            os.makedirs(os.path.join(folder, name))
        by_cmake(cmake, os.path.join(folder, "cmake"), prefix, os.path.join(fixtures, "gemma3-standard23"))
        by_pkg_config(os.path.join(folder, "pkg"), prefix, library, scenarios, fixtures, lists)
        shown = run("nm", "-g", "--defined-only", os.path.join(library, "libplait.a"))
        foreign = [line for line in shown.splitlines() if len(line.split()) == 3 and not line.split()[2].startswith("plait_")]
        assert not foreign, foreign[:10]
        needs = run("objdump", "-T", os.path.join(library, "libplait.so"))
        newest = max(set(re.findall(r"GLIBC_([\d.]+)", needs)), key=lambda text: [int(word) for word in text.split(".")])
        print(f"works from a moved tree, shared and static; the shared library needs glibc {newest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
