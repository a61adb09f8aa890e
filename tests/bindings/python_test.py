"""The bindings for Python: their tests in the build folder's package, mypy over them, and the wheel in an environment of its own.

usage: python_test.py ROOT BUILD FIXTURES

Runs in the environment of bindings/python/get_python.sh, which `./run test` makes; prints NOT RUN and ends where there is none.
"""
import glob
import os
import subprocess
import sys
import tempfile


def main():
    root, build, fixtures = sys.argv[1:4]
    python = os.path.join(root, ".cache", "python", "bin", "python")
    package = os.path.join(build, "bindings", "python")
    if not os.path.exists(os.path.join(package, "package.stamp")):
        print("NOT RUN: there is no Python package; bindings/python/get_python.sh fetches what it needs")
        return 0
    tests = os.path.join(root, "bindings", "python", "tests")
    lists = os.path.join(root, "tests", "bindings")
    env = {**os.environ, "PLAIT_FIXTURES": fixtures, "PLAIT_LISTS": lists, "PYTHONDONTWRITEBYTECODE": "1"}
    unit = ["-X", "faulthandler", "-W", "error", "-m", "unittest"]
    print("tests", flush=True)
    subprocess.run([python, *unit], cwd=tests, env={**env, "PYTHONPATH": package}, check=True)
    print("types", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "mypy", "--strict", "--cache-dir", folder, os.path.join(root, "bindings", "python", "plait")],
                       check=True)
        print("wheel", flush=True)
        subprocess.run([sys.executable, os.path.join(root, "bindings", "python", "wheel.py"), build, folder], check=True)
        wheel, = glob.glob(os.path.join(folder, "*.whl"))
        fresh = os.path.join(folder, "fresh")
        subprocess.run([python, "-m", "venv", fresh], check=True)
        # NumPy is the only other package that it needs.
        numpy, = glob.glob(os.path.join(root, ".cache", "python", "lib", "python3*", "site-packages"))
        site, = glob.glob(os.path.join(fresh, "lib", "python3*", "site-packages"))
        for name in ("numpy", "numpy.libs"):
            os.symlink(os.path.join(numpy, name), os.path.join(site, name))
        subprocess.run([os.path.join(fresh, "bin", "python"), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
                        "--disable-pip-version-check", wheel], check=True)
        where = subprocess.run([os.path.join(fresh, "bin", "python"), "-c", "import plait; print(plait.__file__)"], cwd=folder,
                               check=True, capture_output=True, text=True).stdout
        assert where.startswith(site), where
        licence, = glob.glob(os.path.join(site, "plait-*.dist-info", "licenses", "LICENSE"))
        assert open(licence).read() == open(os.path.join(root, "LICENSE")).read()
        subprocess.run([os.path.join(fresh, "bin", "python"), *unit, "test_scenarios"], cwd=tests, env=env, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
