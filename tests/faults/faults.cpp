// SPDX-License-Identifier: Apache-2.0
// A preloaded library that makes one call fail: what scripts/fault_tests.py runs penstock with.
//
// Calls are counted from `main` on, in a file that all processes of a run share, so that a worker's
// call has a number, too. The call with the number that is asked for fails, or all from it on:
//   memory   malloc and its kin (operator new ends there), mmap: "Cannot allocate memory"
//   io       open, read, write, sync, rename, link, unlink, close, mkdir and their kin:
//            "Input/output error", or "No space left on device" where something is written. Pipes
//            and sockets other than standard output, which stands for a file, do not fail like that
//   short    nothing fails, but a read or write takes half of what it was given
//   process  fork, pipe, socketpair, dup: what fails where there are too many processes or files
// What is written to standard error is never hindered: there a failure is told.
//   PENSTOCK_FAULT_STATE  the file, at least sizeof(State) bytes of zeros but for `kind`, `at` and
//                         `all`; without it nothing happens
//   PENSTOCK_FAULT_TRACE  print where the first call was that failed, for a debugger's eyes
//
// Standard output is replaced by a stream that writes through the counted `write`: the C library's
// own does not call what can be replaced.
#undef _FILE_OFFSET_BITS  // or open is another name of open64, which is replaced, too
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum class Kind : std::uint32_t { memory = 1, io = 2, short_ = 3, process = 4 };

/// What the driver writes before, and reads afterwards (scripts/fault_tests.py has the same).
struct State {
  Kind kind;
  std::uint32_t all;  ///< not 0: every call from `at` on
  std::uint64_t at;   ///< 0: none
  std::atomic<std::uint64_t> calls, failed;
  std::atomic<std::uint64_t> which;  ///< bits of the functions that failed
  char first[32];                    ///< the first one's name
  char what[256];                    ///< and its file
};

State* state = nullptr;  // none: nothing fails
bool traces = false;
thread_local bool inside = false;  // a call that this library makes itself

/// The next definition of `name`, which is the real one. Memory that this takes is not counted.
template <class Function>
Function* real(const char* name) {
  const bool before = inside;
  inside = true;
  void* const found = dlsym(RTLD_NEXT, name);
  inside = before;
  return reinterpret_cast<Function*>(found);
}

void trace() {
  void* frames[64];
  inside = true;
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  inside = false;
}

enum Bit : std::uint64_t { other = 0, removes = 1, closes = 2, syncs = 4 };

/// Is it this call's turn?
bool turn(Kind kind, const char* name, const char* what = "", Bit bit = other) {
  State* const s = state;
  if (s == nullptr || s->kind != kind || inside) return false;
  const std::uint64_t number = s->calls.fetch_add(1) + 1;
  if (s->at == 0 || (s->all != 0 ? number < s->at : number != s->at)) return false;
  s->which.fetch_or(bit);
  if (s->failed.fetch_add(1) == 0) {
    std::strncpy(s->first, name, sizeof s->first - 1);
    std::strncpy(s->what, what, sizeof s->what - 1);
    if (traces) trace();
  }
  return true;
}

bool no_memory(const char* name) {
  const bool fails = turn(Kind::memory, name);
  if (fails) errno = ENOMEM;
  return fails;
}

bool no_io(const char* name, const char* what, int error, Bit bit = other) {
  const bool fails = turn(Kind::io, name, what, bit);
  if (fails) errno = error;
  return fails;
}

/// The path behind a descriptor; "pipe:[1]" and the like where there is none.
struct Name {
  explicit Name(int file) {
    char link[64];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    const ssize_t length = state == nullptr ? -1 : ::readlink(link, text, sizeof text - 1);
    text[length < 0 ? 0 : length] = '\0';
  }
  char text[256];
};

bool no_io(const char* name, int file, int error, Bit bit = other) {
  const Name behind(file);
  const bool is_file = *behind.text == '/' || file == STDOUT_FILENO;
  return is_file && no_io(name, behind.text, error, bit);
}

bool no_process(const char* name, int error) {
  const bool fails = turn(Kind::process, name);
  if (fails) errno = error;
  return fails;
}

std::size_t part_of(std::size_t size, const char* name) {
  return size > 1 && turn(Kind::short_, name) ? size / 2 : size;
}

ssize_t to_stdout(void*, const char* text, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t wrote = ::write(STDOUT_FILENO, text + done, size - done);
    if (wrote < 0) return done > 0 ? static_cast<ssize_t>(done) : 0;  // 0 is a cookie's error
    done += static_cast<std::size_t>(wrote);
  }
  return static_cast<ssize_t>(size);
}

int (*real_main)(int, char**, char**) = nullptr;

int counted_main(int count, char** arguments, char** environment) {
  const char* const path = std::getenv("PENSTOCK_FAULT_STATE");
  const int file = path == nullptr ? -1 : ::open(path, O_RDWR | O_CLOEXEC);
  if (file >= 0) {
    void* const at = ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    stdout = fopencookie(nullptr, "w", {nullptr, to_stdout, nullptr, nullptr});
    traces = std::getenv("PENSTOCK_FAULT_TRACE") != nullptr;
    void* frame[1];
    if (traces) backtrace(frame, 1);  // loads what it needs
    if (at != MAP_FAILED) state = static_cast<State*>(at);
  }
  return real_main(count, arguments, environment);
}

}  // namespace

#define REAL(name) static auto* const call = real<decltype(::name)>(#name)

extern "C" {

int __libc_start_main(int (*main)(int, char**, char**), int count, char** arguments,
                      int (*init)(int, char**, char**), void (*fini)(), void (*rtld_fini)(),
                      void* stack_end) {
  real_main = main;
  using Start = int(int (*)(int, char**, char**), int, char**, int (*)(int, char**, char**),
                    void (*)(), void (*)(), void*);
  return real<Start>("__libc_start_main")(counted_main, count, arguments, init, fini, rtld_fini,
                                          stack_end);
}

// ---- memory. dlsym may ask for some, so the C library's other names are used.

void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) { return no_memory("malloc") ? nullptr : __libc_malloc(size); }
void* calloc(std::size_t count, std::size_t size) {
  return no_memory("calloc") ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
  return no_memory("realloc") ? nullptr : __libc_realloc(old, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return no_memory("aligned_alloc") ? nullptr : __libc_memalign(alignment, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  return no_memory("memalign") ? nullptr : __libc_memalign(alignment, size);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t size) {
  if (no_memory("posix_memalign")) return ENOMEM;
  *result = __libc_memalign(alignment, size);
  return *result == nullptr ? ENOMEM : 0;
}
void* mmap(void* at, std::size_t size, int protection, int flags, int file, off_t offset) {
  REAL(mmap);
  return no_memory("mmap") ? MAP_FAILED : call(at, size, protection, flags, file, offset);
}
void* mmap64(void* at, std::size_t size, int protection, int flags, int file, off64_t offset) {
  return mmap(at, size, protection, flags, file, offset);
}

// ---- files

// Too many open files, which is what an open of something that is there fails with in practice.
int openat(int folder, const char* path, int flags, ...) {
  REAL(openat);
  va_list rest;
  va_start(rest, flags);
  const bool makes = (flags & (O_CREAT | O_TMPFILE)) != 0;
  const mode_t mode = makes ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  // What is in a folder that cannot be opened cannot be removed either.
  const Bit bit = (flags & O_DIRECTORY) != 0 ? removes : other;
  return no_io("open", path, EMFILE, bit) ? -1 : call(folder, path, flags, mode);
}
int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const bool makes = (flags & (O_CREAT | O_TMPFILE)) != 0;
  const mode_t mode = makes ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return openat(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const bool makes = (flags & (O_CREAT | O_TMPFILE)) != 0;
  const mode_t mode = makes ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return openat(AT_FDCWD, path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  REAL(fopen);
  return no_io("fopen", path, EMFILE) ? nullptr : call(path, mode);
}
FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }

ssize_t write(int file, const void* bytes, std::size_t size) {
  REAL(write);
  if (file == STDERR_FILENO) return call(file, bytes, size);
  if (no_io("write", file, ENOSPC)) return -1;
  return call(file, bytes, part_of(size, "write"));
}
ssize_t writev(int file, const iovec* parts, int count) {
  REAL(writev);
  if (file == STDERR_FILENO) return call(file, parts, count);
  if (no_io("writev", file, ENOSPC)) return -1;
  // Half of one part is as short as half of all.
  if (count > 0 && turn(Kind::short_, "writev"))
    return ::write(file, parts->iov_base, (parts->iov_len + 1) / 2);
  return call(file, parts, count);
}
ssize_t pwrite(int file, const void* bytes, std::size_t size, off_t offset) {
  REAL(pwrite);
  if (no_io("pwrite", file, ENOSPC)) return -1;
  return call(file, bytes, part_of(size, "pwrite"), offset);
}
ssize_t pwrite64(int file, const void* bytes, std::size_t size, off64_t offset) {
  return pwrite(file, bytes, size, offset);
}
ssize_t read(int file, void* bytes, std::size_t size) {
  REAL(read);
  if (no_io("read", file, EIO)) return -1;
  return call(file, bytes, part_of(size, "read"));
}
// Of the C library's streams: its own reads do not call what can be replaced.
std::size_t fread(void* bytes, std::size_t size, std::size_t count, FILE* file) {
  REAL(fread);
  if (!no_io("fread", fileno(file), EIO)) return call(bytes, size, count, file);
  file->_flags |= 0x20;  // what ferror looks at
  return 0;
}
int fclose(FILE* file) {
  REAL(fclose);
  const bool fails = no_io("fclose", fileno(file), EIO, closes);
  const int result = call(file);
  if (!fails) return result;
  errno = EIO;
  return EOF;
}
ssize_t pread(int file, void* bytes, std::size_t size, off_t offset) {
  REAL(pread);
  if (no_io("pread", file, EIO)) return -1;
  return call(file, bytes, part_of(size, "pread"), offset);
}
ssize_t pread64(int file, void* bytes, std::size_t size, off64_t offset) {
  return pread(file, bytes, size, offset);
}
int fsync(int file) {
  REAL(fsync);
  return no_io("fsync", file, EIO, syncs) ? -1 : call(file);
}
int fdatasync(int file) {
  REAL(fdatasync);
  return no_io("fdatasync", file, EIO, syncs) ? -1 : call(file);
}
int close(int file) {  // closed all the same, as Linux does
  REAL(close);
  const bool fails = no_io("close", file, EIO, closes);
  const int result = call(file);
  if (!fails) return result;
  errno = EIO;
  return -1;
}
int rename(const char* from, const char* to) {
  REAL(rename);
  return no_io("rename", to, EIO) ? -1 : call(from, to);
}
int renameat(int folder, const char* from, int to_folder, const char* to) {
  REAL(renameat);
  return no_io("renameat", to, EIO) ? -1 : call(folder, from, to_folder, to);
}
int renameat2(int folder, const char* from, int to_folder, const char* to, unsigned flags) {
  REAL(renameat2);
  return no_io("renameat2", to, EIO) ? -1 : call(folder, from, to_folder, to, flags);
}
int link(const char* from, const char* to) {
  REAL(link);
  return no_io("link", to, ENOSPC) ? -1 : call(from, to);
}
int linkat(int folder, const char* from, int to_folder, const char* to, int flags) {
  REAL(linkat);
  return no_io("linkat", to, ENOSPC) ? -1 : call(folder, from, to_folder, to, flags);
}
int unlink(const char* path) {
  REAL(unlink);
  return no_io("unlink", path, EIO, removes) ? -1 : call(path);
}
int unlinkat(int folder, const char* path, int flags) {
  REAL(unlinkat);
  return no_io("unlinkat", path, EIO, removes) ? -1 : call(folder, path, flags);
}
int remove(const char* path) {
  REAL(remove);
  return no_io("remove", path, EIO, removes) ? -1 : call(path);
}
int rmdir(const char* path) {
  REAL(rmdir);
  return no_io("rmdir", path, EIO, removes) ? -1 : call(path);
}
int mkdir(const char* path, mode_t mode) {
  REAL(mkdir);
  return no_io("mkdir", path, ENOSPC) ? -1 : call(path, mode);
}
int ftruncate(int file, off_t size) {
  REAL(ftruncate);
  return no_io("ftruncate", file, EIO) ? -1 : call(file, size);
}
int ftruncate64(int file, off64_t size) { return ftruncate(file, size); }
int fallocate(int file, int mode, off_t offset, off_t size) {
  REAL(fallocate);
  return no_io("fallocate", file, ENOSPC) ? -1 : call(file, mode, offset, size);
}
int fallocate64(int file, int mode, off64_t offset, off64_t size) {
  return fallocate(file, mode, offset, size);
}
int posix_fallocate(int file, off_t offset, off_t size) {
  REAL(posix_fallocate);
  return no_io("posix_fallocate", file, ENOSPC) ? ENOSPC : call(file, offset, size);
}
int posix_fallocate64(int file, off64_t offset, off64_t size) {
  return posix_fallocate(file, offset, size);
}

// ---- processes

pid_t fork() {
  REAL(fork);
  return no_process("fork", EAGAIN) ? -1 : call();
}
int pipe(int* ends) {
  REAL(pipe);
  return no_process("pipe", EMFILE) ? -1 : call(ends);
}
int pipe2(int* ends, int flags) {
  REAL(pipe2);
  return no_process("pipe2", EMFILE) ? -1 : call(ends, flags);
}
int socketpair(int domain, int type, int protocol, int* ends) {
  REAL(socketpair);
  return no_process("socketpair", EMFILE) ? -1 : call(domain, type, protocol, ends);
}
int socket(int domain, int type, int protocol) {
  REAL(socket);
  return no_process("socket", EMFILE) ? -1 : call(domain, type, protocol);
}
int dup(int file) {
  REAL(dup);
  return no_process("dup", EMFILE) ? -1 : call(file);
}
int dup2(int file, int to) {
  REAL(dup2);
  return no_process("dup2", EMFILE) ? -1 : call(file, to);
}

}  // extern "C"
