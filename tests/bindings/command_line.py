"""Calls of the program `plait` by tests."""
import os
import shutil
import subprocess
import tempfile
import unittest

from limits import HANG_S


class CommandLine(unittest.TestCase):
    plait = None  # the program

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def file(self, name, text=None):
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, "w") as file:
                file.write(text)
        return path

    def call(self, *words, status=0, stdin="", env={}):
        environment = dict(os.environ, XDG_CACHE_HOME=os.path.join(self.folder, "cache"), **env)
        done = subprocess.run([self.plait, *words], input=stdin.encode(), capture_output=True, env=environment,
                              timeout=HANG_S)
        self.assertEqual(done.returncode, status, (words, done.stderr))
        return done.stdout.decode(), done.stderr.decode()

    def error(self, *words, status=1, names=(), **more):
        """The command fails with one line that names things; stdout stays empty."""
        out, err = self.call(*words, status=status, **more)
        self.assertEqual(out, "")
        self.assertTrue(err.startswith("plait: error: ") and err.count("\n") == 1, err)
        for name in names:
            self.assertIn(name, err)
