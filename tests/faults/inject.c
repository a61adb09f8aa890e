// Makes the k-th call of a class of the system's functions fail, in a process into which it is preloaded.
//
// The page of inject.h is a file that PLAIT_FAULTS names. Calls are counted from main() on, and not the loader's. Descriptor 2 is
// never made to fail: messages have to come out.
#define _GNU_SOURCE
#include "tests/faults/inject.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
  of_alloc, of_mmap, of_open, of_read, of_write, of_close, of_stat, of_dir, of_fsync, of_rename,
  of_unlink, of_mkdir, of_thread, of_socket, of_accept, of_recv, of_send, of_epoll, of_link, of_lock
};

static fault_page* page;
static _Thread_local int inside __attribute__((tls_model("initial-exec")));

static void describe(char* out, void** frames, int count) {
  size_t used = 0;
  for (int i = 0; i < count && used + 300 < fault_text; ++i) {
    Dl_info info;
    const int known = dladdr(frames[i], &info) && info.dli_fname;
    const char* name = known ? strrchr(info.dli_fname, '/') : NULL;
    used += (size_t)snprintf(out + used, fault_text - used, "%s+%zx\n", name ? name + 1 : known ? info.dli_fname : "?",
                             (size_t)frames[i] - (known ? (size_t)info.dli_fbase : 0));
  }
}

static uint64_t hash_of(void** frames, int count) {
  uint64_t hash = 1469598103934665603u;
  for (int i = 0; i < count; ++i) {
    Dl_info info;
    const size_t base = dladdr(frames[i], &info) ? (size_t)info.dli_fbase : 0;
    hash = (hash ^ ((size_t)frames[i] - base)) * 1099511628211u;
  }
  return hash ? hash : 1;
}

static void note_site(int64_t number) {
  void* frames[fault_depth + 3];
  const int count = backtrace(frames, fault_depth + 3);
  const uint64_t hash = hash_of(frames + 3, count > 3 ? count - 3 : 0);
  for (size_t i = hash % fault_sites, tried = 0; tried < 64; ++tried, i = (i + 1) % fault_sites) {
    if (page->sites[i].stack == hash) return;
    if (page->sites[i].stack) continue;
    page->sites[i].stack = hash;
    page->sites[i].first = number;
    ++page->site_count;
    return;
  }
}

// Whether this call is to fail; sets errno.
static int fails(int class_index) {
  if (!page || page->mode == fault_off || page->mode == fault_short || inside) return 0;
  const int64_t number = __atomic_add_fetch(&page->calls[class_index], 1, __ATOMIC_RELAXED);
  if (class_index != page->class_index) return 0;
  if (page->mode == fault_count) {
    if (page->wants_sites) {
      inside = 1;
      note_site(number);
      inside = 0;
    }
    return 0;
  }
  if (page->mode == fault_from_then_on ? number < page->number : number != page->number) return 0;
  if (__atomic_fetch_add(&page->injected, 1, __ATOMIC_RELAXED) == 0) {
    inside = 1;
    void* frames[24];
    const int count = backtrace(frames, 24);
    describe(page->stack, frames + 2, count > 2 ? count - 2 : 0);
    inside = 0;
  }
  errno = page->error;
  return 1;
}

static int is_short(void) { return page && page->mode == fault_short; }

static void at_signal(int number) {
  inside = 1;
  void* frames[24];
  const int count = backtrace(frames, 24);
  if (page && !page->ending[0]) describe(page->ending, frames, count);
  signal(number, SIG_DFL);
  raise(number);
}

static void begin(void) {
  const char* path = getenv("PLAIT_FAULTS");
  const int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void* mapped = mmap(NULL, sizeof(fault_page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  void* frames[4];
  backtrace(frames, 4);  // takes memory at its first use
  const int fatal[] = {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE};
  for (size_t i = 0; i < sizeof fatal / sizeof *fatal; ++i) signal(fatal[i], at_signal);
  if (mapped != MAP_FAILED) page = mapped;
}

static int (*real_main)(int, char**, char**);
static int counted_main(int count, char** words, char** environment) {
  begin();
  return real_main(count, words, environment);
}

#define REAL(type, name)                                                 \
  static type (*real)() = NULL;                                          \
  if (!real) {                                                           \
    ++inside;                                                            \
    *(void**)&real = dlsym(RTLD_NEXT, name);                             \
    --inside;                                                            \
  }

int __libc_start_main(int (*main)(int, char**, char**), int count, char** words, void (*init)(void), void (*fini)(void),
                      void (*loader_fini)(void), void* stack) {
  REAL(int, "__libc_start_main")
  real_main = main;
  return real(counted_main, count, words, init, fini, loader_fini, stack);
}

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) { return fails(of_alloc) ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return fails(of_alloc) ? NULL : __libc_calloc(count, size); }
void* realloc(void* old, size_t size) { return size && fails(of_alloc) ? NULL : __libc_realloc(old, size); }
void* memalign(size_t alignment, size_t size) { return fails(of_alloc) ? NULL : __libc_memalign(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) { return fails(of_alloc) ? NULL : __libc_memalign(alignment, size); }
int posix_memalign(void** out, size_t alignment, size_t size) {
  if (fails(of_alloc)) return ENOMEM;
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}

// NAME(type, class, what a failed call returns, parameters, arguments)
#define WRAP(type, name, class_index, failed, parameters, arguments) \
  type name parameters {                                             \
    if (fails(class_index)) return failed;                           \
    REAL(type, #name)                                                \
    return real arguments;                                           \
  }

#define OF_MAP (void *a, size_t n, int p, int f, int d, off_t o), (a, n, p, f, d, o)
void* mmap(void* a, size_t n, int p, int f, int d, off_t o) {
  if (fails(of_mmap)) return MAP_FAILED;
  REAL(void*, "mmap")
  return real(a, n, p, f, d, o);
}
void* mmap64(void* a, size_t n, int p, int f, int d, off_t o) { return mmap(a, n, p, f, d, o); }

static int open_as(int directory, const char* path, int flags, mode_t mode) {
  if (fails(of_open)) return -1;
  REAL(int, "openat")
  return real(directory, path, flags, mode);
}
#define MODE_OF(flags)                                   \
  mode_t mode = 0;                                       \
  if ((flags) & (O_CREAT | O_TMPFILE)) {                 \
    va_list list;                                        \
    va_start(list, flags);                               \
    mode = va_arg(list, mode_t);                         \
    va_end(list);                                        \
  }
int open(const char* path, int flags, ...) { MODE_OF(flags) return open_as(AT_FDCWD, path, flags, mode); }
int open64(const char* path, int flags, ...) { MODE_OF(flags) return open_as(AT_FDCWD, path, flags, mode); }
int openat(int at, const char* path, int flags, ...) { MODE_OF(flags) return open_as(at, path, flags, mode); }
int openat64(int at, const char* path, int flags, ...) { MODE_OF(flags) return open_as(at, path, flags, mode); }
WRAP(FILE*, fopen, of_open, NULL, (const char* path, const char* mode), (path, mode))
WRAP(FILE*, fopen64, of_open, NULL, (const char* path, const char* mode), (path, mode))

#define SHORT(size) (is_short() && page->class_index == of_read && (size) > 1 ? (size) / 2 : (size))
WRAP(ssize_t, read, of_read, -1, (int fd, void* to, size_t size), (fd, to, SHORT(size)))
WRAP(ssize_t, pread, of_read, -1, (int fd, void* to, size_t size, off_t at), (fd, to, SHORT(size), at))
WRAP(ssize_t, pread64, of_read, -1, (int fd, void* to, size_t size, off_t at), (fd, to, SHORT(size), at))
WRAP(ssize_t, readv, of_read, -1, (int fd, const struct iovec* to, int count), (fd, to, count))
ssize_t write(int fd, const void* from, size_t size) {
  if (fd != 2 && fails(of_write)) return -1;
  REAL(ssize_t, "write")
  return real(fd, from, size);
}
WRAP(ssize_t, pwrite, of_write, -1, (int fd, const void* from, size_t size, off_t at), (fd, from, size, at))
ssize_t writev(int fd, const struct iovec* from, int count) {
  if (fd != 2 && fails(of_write)) return -1;
  REAL(ssize_t, "writev")
  return real(fd, from, count);
}
int close(int fd) {
  REAL(int, "close")
  const int done = real(fd);
  return fails(of_close) ? -1 : done;  // as the kernel does: the descriptor is gone
}
WRAP(int, stat, of_stat, -1, (const char* path, struct stat* out), (path, out))
WRAP(int, stat64, of_stat, -1, (const char* path, struct stat64* out), (path, out))
WRAP(int, lstat, of_stat, -1, (const char* path, struct stat* out), (path, out))
WRAP(int, lstat64, of_stat, -1, (const char* path, struct stat64* out), (path, out))
WRAP(int, fstat, of_stat, -1, (int fd, struct stat* out), (fd, out))
WRAP(int, fstat64, of_stat, -1, (int fd, struct stat64* out), (fd, out))
WRAP(int, fstatat, of_stat, -1, (int at, const char* path, struct stat* out, int flags), (at, path, out, flags))
WRAP(int, statx, of_stat, -1, (int at, const char* path, int flags, unsigned mask, struct statx* out), (at, path, flags, mask, out))
WRAP(char*, realpath, of_stat, NULL, (const char* path, char* out), (path, out))
WRAP(DIR*, opendir, of_dir, NULL, (const char* path), (path))
WRAP(DIR*, fdopendir, of_dir, NULL, (int fd), (fd))
WRAP(struct dirent*, readdir, of_dir, NULL, (DIR* open), (open))
WRAP(struct dirent64*, readdir64, of_dir, NULL, (DIR* open), (open))
WRAP(int, fsync, of_fsync, -1, (int fd), (fd))
WRAP(int, fdatasync, of_fsync, -1, (int fd), (fd))
WRAP(int, rename, of_rename, -1, (const char* from, const char* to), (from, to))
WRAP(int, renameat2, of_rename, -1, (int a, const char* from, int b, const char* to, unsigned flags), (a, from, b, to, flags))
WRAP(int, unlink, of_unlink, -1, (const char* path), (path))
WRAP(int, unlinkat, of_unlink, -1, (int at, const char* path, int flags), (at, path, flags))
WRAP(int, rmdir, of_unlink, -1, (const char* path), (path))
WRAP(int, remove, of_unlink, -1, (const char* path), (path))
WRAP(int, mkdir, of_mkdir, -1, (const char* path, mode_t mode), (path, mode))
WRAP(int, symlink, of_link, -1, (const char* to, const char* path), (to, path))
WRAP(ssize_t, readlink, of_link, -1, (const char* path, char* out, size_t size), (path, out, size))
WRAP(int, flock, of_lock, -1, (int fd, int how), (fd, how))
WRAP(int, ftruncate, of_lock, -1, (int fd, off_t size), (fd, size))
int pthread_create(pthread_t* out, const pthread_attr_t* attributes, void* (*body)(void*), void* own) {
  if (fails(of_thread)) return page->error;
  REAL(int, "pthread_create")
  return real(out, attributes, body, own);
}
WRAP(int, socket, of_socket, -1, (int domain, int type, int protocol), (domain, type, protocol))
WRAP(int, bind, of_socket, -1, (int fd, const struct sockaddr* to, socklen_t size), (fd, to, size))
WRAP(int, listen, of_socket, -1, (int fd, int count), (fd, count))
WRAP(int, accept4, of_accept, -1, (int fd, struct sockaddr* out, socklen_t* size, int flags), (fd, out, size, flags))
WRAP(ssize_t, recv, of_recv, -1, (int fd, void* to, size_t size, int flags), (fd, to, size, flags))
WRAP(ssize_t, send, of_send, -1, (int fd, const void* from, size_t size, int flags), (fd, from, size, flags))
WRAP(ssize_t, sendmsg, of_send, -1, (int fd, const struct msghdr* from, int flags), (fd, from, flags))
WRAP(int, epoll_create1, of_epoll, -1, (int flags), (flags))
WRAP(int, epoll_ctl, of_epoll, -1, (int fd, int what, int other, struct epoll_event* event), (fd, what, other, event))
WRAP(int, eventfd, of_epoll, -1, (unsigned begin, int flags), (begin, flags))
