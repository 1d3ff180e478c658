/* A preloaded library that fails the n-th system call below a folder, or records all of them.
 *
 * Calls are counted only on paths below the watched folder; every other call passes through. What the libraries of a
 * process do is counted too (SQLite, numpy), which patches in Python would miss. `faults_begin` starts to watch,
 * `faults_end` stops. The record has one entry per call and one per effect on the disk; see campaigns/shim.py.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { INTERRUPTIBLE = 1, ALLOCATES = 2, WRITES = 4 }; /* what a call may answer: EINTR, ENOSPC, fewer bytes */
enum { ONCE = 0, FROM_THEN_ON = 1 };
#define SHORT (-1)

static char watched[PATH_MAX], failed_call[32];
static int watching, record_fd = -1, fault, persistence;
static long calls, fail_at;

/* --- the record ------------------------------------------------------------------------------------------------- */

struct entry { uint64_t kind, inode, offset, first, second; }; /* followed by two texts or a text and data */

static void append(const void *data, size_t size) {
    const char *rest = data;
    while (size) {
        long count = syscall(SYS_write, record_fd, rest, size);
        if (count <= 0) return;
        rest += count;
        size -= (size_t)count;
    }
}

static void record(char kind, uint64_t inode, uint64_t offset, const char *first, const void *second, size_t size) {
    if (record_fd < 0) return;
    int saved = errno;
    struct entry head = {(uint64_t)kind, inode, offset, first ? strlen(first) : 0, size};
    append(&head, sizeof head);
    append(first, head.first);
    append(second, size);
    errno = saved;
}

static uint64_t inode_of(int fd) {
    struct stat facts;
    return fstat(fd, &facts) ? 0 : facts.st_ino;
}

static void record_data(int fd, off_t offset, const void *data, ssize_t size) {
    if (size > 0) record('W', inode_of(fd), (uint64_t)offset, NULL, data, (size_t)size);
}

/* What a call copied from one file into another: read back from the source. */
static void record_copied(int in, off_t from, int out, off_t to, ssize_t size) {
    char block[65536];
    while (size > 0) {
        long count = syscall(SYS_pread64, in, block, sizeof block < (size_t)size ? sizeof block : (size_t)size, from);
        if (count <= 0) return;
        record_data(out, to, block, count);
        from += count, to += count, size -= count;
    }
}

/* --- which calls are watched, and which fails ------------------------------------------------------------------- */

static int below(const char *path) {
    size_t length = strlen(watched);
    return strncmp(path, watched, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    path[length < 0 ? 0 : length] = 0;
    return length > 0;
}

static int absolute(int folder, const char *name, char *path) {
    if (name[0] == '/') return snprintf(path, PATH_MAX, "%s", name) > 0;
    if (folder == AT_FDCWD ? !getcwd(path, PATH_MAX) : !path_of(folder, path)) return 0;
    size_t length = strlen(path);
    return snprintf(path + length, PATH_MAX - length, "/%s", name) > 0;
}

static int watches(int folder, const char *name, char *path) {
    int saved = errno;
    int inside = watching && name && absolute(folder, name, path) && below(path);
    errno = saved;
    return inside;
}

static int watches_fd(int fd) {
    char path[PATH_MAX];
    int saved = errno;
    int inside = watching && path_of(fd, path) && below(path);
    errno = saved;
    return inside;
}

/* Count a watched call; return 0 to let it pass, SHORT to write less, else the error to answer with. */
static int count_call(const char *name, int answers) {
    record('N', (uint64_t)answers, 0, name, NULL, 0);
    calls++;
    if (!fail_at || (persistence == FROM_THEN_ON ? calls < fail_at : calls != fail_at)) return 0;
    if (fault == EINTR && !(answers & INTERRUPTIBLE)) return 0;
    if (fault == ENOSPC && !(answers & ALLOCATES)) return 0;
    if (fault == SHORT && !(answers & WRITES)) return 0;
    if (!failed_call[0]) snprintf(failed_call, sizeof failed_call, "%s", name);
    return fault;
}

#define FAIL_PATH(folder, path, name, answers)                                                                        \
    char at[PATH_MAX];                                                                                                \
    int inside = watches(folder, path, at);                                                                           \
    if (inside) {                                                                                                     \
        int error = count_call(name, answers);                                                                        \
        if (error) { errno = error; return -1; }                                                                      \
    }

#define FAIL_FD(fd, name, answers)                                                                                    \
    int inside = watches_fd(fd);                                                                                      \
    int error = inside ? count_call(name, answers) : 0;                                                               \
    if (error > 0) { errno = error; return -1; }

/* --- opening ----------------------------------------------------------------------------------------------------- */

static int watched_open(int folder, const char *name, int flags, mode_t mode) {
    struct stat facts;
    int nameless = (flags & __O_TMPFILE) != 0;
    int answers = INTERRUPTIBLE | (flags & (O_CREAT | O_TRUNC | __O_TMPFILE) ? ALLOCATES : 0);
    FAIL_PATH(folder, name, "open", answers)
    int fresh = inside && (flags & O_CREAT) && lstat(at, &facts) != 0;
    int fd = (int)syscall(SYS_openat, folder, name, flags, mode);
    if (fd >= 0 && inside) {
        if (nameless) record('A', inode_of(fd), 0, NULL, NULL, 0);
        else if (fresh) record('C', inode_of(fd), 0, at, NULL, 0);
        else if ((flags & O_TRUNC) && (flags & O_ACCMODE)) record('T', inode_of(fd), 0, NULL, NULL, 0);
    }
    return fd;
}

#define MODE                                                                                                          \
    mode_t mode = 0;                                                                                                  \
    if (flags & (O_CREAT | __O_TMPFILE)) {                                                                            \
        va_list rest;                                                                                                 \
        va_start(rest, flags);                                                                                        \
        mode = va_arg(rest, mode_t);                                                                                  \
        va_end(rest);                                                                                                 \
    }

int open(const char *name, int flags, ...) { MODE return watched_open(AT_FDCWD, name, flags, mode); }
int open64(const char *name, int flags, ...) { MODE return watched_open(AT_FDCWD, name, flags, mode); }
int openat(int folder, const char *name, int flags, ...) { MODE return watched_open(folder, name, flags, mode); }
int openat64(int folder, const char *name, int flags, ...) { MODE return watched_open(folder, name, flags, mode); }
int creat(const char *name, mode_t mode) { return watched_open(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int __open_2(const char *name, int flags) { return watched_open(AT_FDCWD, name, flags, 0); }
int __open64_2(const char *name, int flags) { return watched_open(AT_FDCWD, name, flags, 0); }

/* --- writing ----------------------------------------------------------------------------------------------------- */

ssize_t write(int fd, const void *data, size_t size) {
    FAIL_FD(fd, "write", INTERRUPTIBLE | ALLOCATES | (size > 1 ? WRITES : 0))
    ssize_t count = syscall(SYS_write, fd, data, error == SHORT ? size / 2 : size);
    if (inside && count > 0) record_data(fd, lseek(fd, 0, SEEK_CUR) - count, data, count);
    return count;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    FAIL_FD(fd, "pwrite", INTERRUPTIBLE | ALLOCATES | (size > 1 ? WRITES : 0))
    ssize_t count = syscall(SYS_pwrite64, fd, data, error == SHORT ? size / 2 : size, offset);
    if (inside) record_data(fd, offset, data, count);
    return count;
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) { return pwrite(fd, data, size, offset); }

ssize_t writev(int fd, const struct iovec *parts, int number) {
    if (!watches_fd(fd)) return syscall(SYS_writev, fd, parts, number);
    ssize_t total = 0; /* one part at a time, as if the others had not fitted: each is counted */
    for (int i = 0; i < number; i++) {
        ssize_t count = write(fd, parts[i].iov_base, parts[i].iov_len);
        if (count < 0) return total ? total : -1;
        total += count;
        if ((size_t)count < parts[i].iov_len) break;
    }
    return total;
}

ssize_t sendfile(int out, int in, off_t *offset, size_t size) {
    FAIL_FD(out, "sendfile", ALLOCATES | (size > 1 ? WRITES : 0))
    off_t from = offset ? *offset : lseek(in, 0, SEEK_CUR), to = lseek(out, 0, SEEK_CUR);
    ssize_t count = syscall(SYS_sendfile, out, in, offset, error == SHORT ? 1 : size);
    if (inside) record_copied(in, from, out, to, count);
    return count;
}
ssize_t sendfile64(int out, int in, off64_t *offset, size_t size) { return sendfile(out, in, offset, size); }

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    if (watches_fd(out)) { errno = EXDEV; return -1; } /* callers copy in another way then, which is counted */
    return syscall(SYS_copy_file_range, in, from, out, to, size, flags);
}

int ftruncate(int fd, off_t length) {
    FAIL_FD(fd, "ftruncate", INTERRUPTIBLE | ALLOCATES)
    int answer = (int)syscall(SYS_ftruncate, fd, length);
    if (inside && !answer) record('T', inode_of(fd), (uint64_t)length, NULL, NULL, 0);
    return answer;
}
int ftruncate64(int fd, off64_t length) { return ftruncate(fd, length); }

int posix_fallocate(int fd, off_t offset, off_t length) { /* answers with the error itself */
    struct stat facts;
    int inside = watches_fd(fd);
    int error = inside ? count_call("fallocate", INTERRUPTIBLE | ALLOCATES) : 0;
    if (error > 0) return error;
    if (syscall(SYS_fallocate, fd, 0, offset, length)) return errno;
    if (inside && !fstat(fd, &facts)) record('T', facts.st_ino, (uint64_t)facts.st_size, NULL, NULL, 0);
    return 0;
}
int posix_fallocate64(int fd, off64_t offset, off64_t length) { return posix_fallocate(fd, offset, length); }

static int sync_fd(int fd, const char *name, long number) {
    FAIL_FD(fd, name, INTERRUPTIBLE | ALLOCATES)
    int answer = (int)syscall(number, fd);
    if (inside && !answer) record('F', inode_of(fd), 0, NULL, NULL, 0);
    return answer;
}
int fsync(int fd) { return sync_fd(fd, "fsync", SYS_fsync); }
int fdatasync(int fd) { return sync_fd(fd, "fdatasync", SYS_fdatasync); }
void sync(void) {
    if (watching) record('S', 0, 0, NULL, NULL, 0);
    syscall(SYS_sync);
}

/* --- names ------------------------------------------------------------------------------------------------------- */

static int watched_rename(int from, const char *old, int to, const char *new, unsigned flags) {
    char source[PATH_MAX];
    int known = watching && absolute(from, old, source);
    FAIL_PATH(to, new, "rename", ALLOCATES)
    int answer = (int)syscall(SYS_renameat2, from, old, to, new, flags);
    if (inside && known && !answer) record('R', 0, 0, source, at, strlen(at));
    return answer;
}
int rename(const char *old, const char *new) { return watched_rename(AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int from, const char *old, int to, const char *new) { return watched_rename(from, old, to, new, 0); }
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return watched_rename(from, old, to, new, flags);
}

static int watched_link(int from, const char *old, int to, const char *new, int flags) {
    struct stat facts;
    FAIL_PATH(to, new, "link", ALLOCATES)
    int answer = (int)syscall(SYS_linkat, from, old, to, new, flags);
    if (inside && !answer && !lstat(at, &facts)) record('L', facts.st_ino, 0, at, NULL, 0);
    return answer;
}
int link(const char *old, const char *new) { return watched_link(AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int from, const char *old, int to, const char *new, int flags) {
    return watched_link(from, old, to, new, flags);
}

static int watched_unlink(int folder, const char *name, int flags) {
    FAIL_PATH(folder, name, flags & AT_REMOVEDIR ? "rmdir" : "unlink", 0)
    int answer = (int)syscall(SYS_unlinkat, folder, name, flags);
    if (inside && !answer) record('U', 0, 0, at, NULL, 0);
    return answer;
}
int unlink(const char *name) { return watched_unlink(AT_FDCWD, name, 0); }
int unlinkat(int folder, const char *name, int flags) { return watched_unlink(folder, name, flags); }
int rmdir(const char *name) { return watched_unlink(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int folder, const char *name, mode_t mode) {
    struct stat facts;
    FAIL_PATH(folder, name, "mkdir", ALLOCATES)
    int answer = (int)syscall(SYS_mkdirat, folder, name, mode);
    if (inside && !answer && !lstat(at, &facts)) record('M', facts.st_ino, 0, at, NULL, 0);
    return answer;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int flock(int fd, int operation) {
    FAIL_FD(fd, "flock", INTERRUPTIBLE)
    return (int)syscall(SYS_flock, fd, operation);
}

/* --- called from Python ------------------------------------------------------------------------------------------ */

void faults_begin(const char *folder, long at, int error, int once_or_on, const char *record_path) {
    snprintf(watched, sizeof watched, "%s", folder);
    record_fd = record_path ? (int)syscall(SYS_openat, AT_FDCWD, record_path, O_CREAT | O_WRONLY | O_APPEND, 0600) : -1;
    calls = 0, fail_at = at, fault = error, persistence = once_or_on, failed_call[0] = 0;
    watching = 1;
}

const char *faults_end(void) {
    watching = 0;
    if (record_fd >= 0) syscall(SYS_close, record_fd);
    record_fd = -1;
    return failed_call;
}

void faults_mark(const char *text) { record('X', 0, 0, text, NULL, 0); }
