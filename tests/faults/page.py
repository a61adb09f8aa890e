"""The page that a driver shares with the library of inject.c, and processes that run under it."""
import ctypes
import errno
import mmap
import os
import re
import signal
import subprocess
import tempfile

CLASSES = ("alloc", "mmap", "open", "read", "write", "close", "stat", "dir", "fsync", "rename", "unlink", "mkdir", "thread",
           "socket", "accept", "recv", "send", "epoll", "link", "lock")
ERRORS = {"alloc": errno.ENOMEM, "mmap": errno.ENOMEM, "open": errno.EMFILE, "write": errno.ENOSPC, "thread": errno.EAGAIN,
          "mkdir": errno.ENOSPC, "socket": errno.EMFILE, "accept": errno.EMFILE, "epoll": errno.ENOMEM, "recv": errno.ECONNRESET,
          "send": errno.ECONNRESET}
OFF, COUNT, ONCE, FROM_THEN_ON, SHORT = range(5)
SITES, TEXT = 1 << 16, 4096
HANG_S = 60


class Site(ctypes.Structure):
    _fields_ = [("stack", ctypes.c_uint64), ("first", ctypes.c_int64)]


class Layout(ctypes.Structure):
    """As fault_page of inject.h."""
    _fields_ = [("mode", ctypes.c_int32), ("class_index", ctypes.c_int32), ("error", ctypes.c_int32),
                ("wants_sites", ctypes.c_int32), ("number", ctypes.c_int64), ("calls", ctypes.c_int64 * len(CLASSES)),
                ("injected", ctypes.c_int64), ("stack", ctypes.c_char * TEXT), ("ending", ctypes.c_char * TEXT),
                ("site_count", ctypes.c_int64), ("sites", Site * SITES)]


class Fault:
    """What fails: the call `number` of a class, or with mode FROM_THEN_ON all from it on."""

    def __init__(self, kind, number, mode=ONCE, error=None):
        self.kind, self.number, self.mode = kind, number, mode
        self.error = error if error is not None else ERRORS.get(kind, errno.EIO)

    def __str__(self):
        return f"{self.kind} {errno.errorcode[self.error]} k={self.number}" + (" and later" if self.mode == FROM_THEN_ON else "")


class Page:
    def __init__(self, library):
        self.library = library
        file, self.path = tempfile.mkstemp()
        os.ftruncate(file, ctypes.sizeof(Layout))
        self.map = mmap.mmap(file, ctypes.sizeof(Layout))
        os.close(file)
        self.layout = Layout.from_buffer(self.map)

    def close(self):
        os.unlink(self.path)

    def clear(self):
        page = self.layout
        page.mode = OFF
        ctypes.memset(ctypes.addressof(page.calls), 0, ctypes.sizeof(page.calls))
        page.injected, page.stack, page.ending = 0, b"", b""

    def arm(self, fault):
        self.clear()
        page = self.layout
        page.class_index, page.error, page.number = CLASSES.index(fault.kind), fault.error, fault.number
        page.mode = fault.mode

    def count(self, kind, sites=False):
        """From now on calls are counted; with sites, where those of the class are made."""
        self.clear()
        page = self.layout
        if sites:
            ctypes.memset(ctypes.addressof(page.sites), 0, ctypes.sizeof(page.sites))
            page.site_count = 0
        page.class_index, page.wants_sites = CLASSES.index(kind), int(sites)
        page.mode = COUNT

    def calls(self, kind):
        return self.layout.calls[CLASSES.index(kind)]

    def sites(self):
        """The number of the first call of each stack."""
        return sorted(site.first for site in self.layout.sites if site.stack)

    def environment(self, **more):
        return dict(os.environ, LD_PRELOAD=self.library, PLAIT_FAULTS=self.path, **more)


class Ended:
    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err
        self.killed = status < 0
        self.hung = status is None

    def __str__(self):
        end = "hangs" if self.hung else signal.Signals(-self.status).name if self.killed else f"exit {self.status}"
        return f"{end}: {self.err.strip()[-300:]}"


def run(words, environment, limit=HANG_S):
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        ended = Ended(1, out.decode(errors="replace"), err.decode(errors="replace"))
        ended.hung = True
        return ended
    return Ended(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def plain(name):
    """Without parameters, templates' arguments and versions: namespace::class::function."""
    name = name.replace("(anonymous namespace)::", "").replace("operator()", "operator call")
    before = None
    while before != name:
        before, name = name, re.sub(r"<[^<>]*>", "", name)
    return re.sub(r"json_abi_v[\d_]+::|\[abi:\w+\]|::h[0-9a-f]{16}", "", name.split("(")[0]).strip() or "lambda"


class Names:
    """Names of functions in a stack, by addr2line's lookup of each module's symbols."""

    def __init__(self, modules):
        self.modules, self.known = modules, {}

    def of(self, frame):
        module, _, offset = frame.rpartition("+")
        path = self.modules.get(module)
        if not path:
            return module or "?"
        if frame not in self.known:
            found = subprocess.run(["addr2line", "-f", "-C", "-e", path, hex(int(offset, 16) - 1)], capture_output=True, text=True)
            name = found.stdout.split("\n")[0] if found.returncode == 0 else ""
            self.known[frame] = plain(name) if name and name != "??" else module
        return self.known[frame]

    def stack(self, text, most=24):
        return [self.of(line) for line in text.split("\n")[:most] if line]
