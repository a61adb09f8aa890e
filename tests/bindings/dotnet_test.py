"""The tests of C# on .NET Core: the same sources, compiled by Mono's compiler against its assemblies.

usage: dotnet_test.py MCS BUILD FIXTURES LISTS SECONDS, where BUILD is a build folder with the bindings for C#

The runtime is that of get_dotnet.sh, which `./run test` fetches; says NOT RUN and ends where there is none.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUNTIME = os.path.join(ROOT, ".cache", "dotnet", "dotnetcore2", "bin")
# Mono's own assemblies have types (Span) where .NET Core has none of that name, so they are no reference.
ASSEMBLIES = ["System.Private.CoreLib", "System.Collections", "System.Collections.Concurrent", "System.Console",
              "System.Diagnostics.Process", "System.ComponentModel.Primitives", "System.IO.FileSystem", "System.Linq",
              "System.Memory", "System.Net.Primitives", "System.Net.Sockets", "System.Private.Uri", "System.Runtime",
              "System.Runtime.Extensions", "System.Runtime.InteropServices",
              "System.Threading", "System.Threading.Tasks", "System.Threading.Thread"]
# Without ICU, which the machine need not have: texts are compared by code points.
CONFIGURATION = {
    "runtimeOptions": {
        "framework": {"name": "Microsoft.NETCore.App", "version": "3.1.0"},
        "configProperties": {"System.Globalization.Invariant": True},
    }
}


def compile_program(mcs, build, folder):
    """Plait.dll with its native libraries next to it, and the program."""
    shared = glob.glob(os.path.join(RUNTIME, "shared", "Microsoft.NETCore.App", "*"))[0]
    words = [mcs, "-unsafe", "-langversion:7.2", "-nostdlib", "-noconfig", "-nowarn:1702", "-lib:" + shared]
    words += [f"-r:{name}.dll" for name in ASSEMBLIES]
    library, program = os.path.join(folder, "Plait.dll"), os.path.join(folder, "Tests.exe")
    layer = glob.glob(os.path.join(ROOT, "bindings/csharp/Plait/*.cs"))
    layer += glob.glob(os.path.join(build, "bindings/swig/csharp/*.cs"))
    subprocess.run([*words, "-target:library", "-out:" + library, *layer], check=True)
    tests = glob.glob(os.path.join(ROOT, "bindings/csharp/Tests/*.cs"))
    subprocess.run([*words, "-r:" + library, "-out:" + program, *tests], check=True)
    for name in ("libplait_csharp.so", "libplait.so.0", "libplait_server.so.0"):
        os.symlink(os.path.realpath(os.path.join(build, "bindings/csharp", name)), os.path.join(folder, name))
    return program


def main():
    mcs, build, *words = sys.argv[1:]
    dotnet = os.path.join(RUNTIME, "dotnet")
    if not os.path.exists(dotnet):
        print("NOT RUN: there is no .NET; tests/bindings/get_dotnet.sh fetches it")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program(mcs, build, folder)
        configuration = os.path.join(folder, "Tests.runtimeconfig.json")
        with open(configuration, "w") as file:
            json.dump(CONFIGURATION, file)
        environment = dict(os.environ, DOTNET_CLI_TELEMETRY_OPTOUT="1")
        done = subprocess.run([dotnet, "exec", "--runtimeconfig", configuration, program, *words], env=environment)
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
