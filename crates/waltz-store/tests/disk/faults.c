/* A disk that fails, for tests: preloaded into a program, it makes calls on files fail whose path holds
 * the text FAULT_PATH.
 *
 *   FAULT_CALL   open (for writing), write, sync or cut
 *   FAULT_ERROR  the number of the error; 0 for a write that takes only half of the bytes
 *   FAULT_NTH    the call that fails, counted from 1; 0 for every call
 *   FAULT_SLOW   milliseconds that the call takes; it then succeeds
 *   FAULT_WHILE  a file: faults happen only while it exists
 *   FAULT_HIT    a file that is created at the first fault
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

enum fault { NONE, FAIL, HALF };

static enum fault fault(const char *call, const char *path) {
    static atomic_long calls;
    const char *wanted = getenv("FAULT_CALL"), *part = getenv("FAULT_PATH"), *while_there = getenv("FAULT_WHILE");
    const char *nth = getenv("FAULT_NTH"), *error = getenv("FAULT_ERROR"), *slow = getenv("FAULT_SLOW");
    if (!wanted || !part || strcmp(wanted, call) || !strstr(path, part)) return NONE;
    if (while_there && access(while_there, F_OK)) return NONE;
    long number = nth ? atol(nth) : 0;
    if (number && atomic_fetch_add(&calls, 1) + 1 != number) return NONE;
    const char *hit = getenv("FAULT_HIT");
    if (hit) {
        int made = creat(hit, 0600);
        if (made >= 0) close(made);
    }
    if (slow) {
        long wait = atol(slow);
        struct timespec time = {wait / 1000, wait % 1000 * 1000000};
        nanosleep(&time, NULL);
        return NONE;
    }
    errno = error ? atoi(error) : EIO;
    return errno ? FAIL : HALF;
}

static enum fault fault_at(const char *call, int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return NONE;
    path[length] = 0;
    return fault(call, path);
}

#define ON_WRITE(call)                                    \
    switch (fault_at("write", file)) {                    \
    case FAIL: return -1;                                 \
    case HALF: if (count > 1) count /= 2; /* and on */    \
    case NONE: default: return call;                      \
    }

ssize_t write(int file, const void *bytes, size_t count) {
    REAL(write);
    ON_WRITE(real(file, bytes, count))
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) {
    REAL(pwrite);
    ON_WRITE(real(file, bytes, count, offset))
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t offset) {
    REAL(pwrite64);
    ON_WRITE(real(file, bytes, count, offset))
}

int fsync(int file) {
    REAL(fsync);
    return fault_at("sync", file) == FAIL ? -1 : real(file);
}

int fdatasync(int file) {
    REAL(fdatasync);
    return fault_at("sync", file) == FAIL ? -1 : real(file);
}

int ftruncate(int file, off_t length) {
    REAL(ftruncate);
    return fault_at("cut", file) == FAIL ? -1 : real(file, length);
}

int ftruncate64(int file, off64_t length) {
    REAL(ftruncate64);
    return fault_at("cut", file) == FAIL ? -1 : real(file, length);
}

#define OPEN(name)                                                                                   \
    int name(const char *path, int flags, ...) {                                                     \
        REAL(name);                                                                                  \
        va_list rest;                                                                                \
        va_start(rest, flags);                                                                       \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                      \
        va_end(rest);                                                                                \
        if (flags & (O_WRONLY | O_RDWR | O_CREAT) && fault("open", path) == FAIL) return -1;         \
        return real(path, flags, mode);                                                              \
    }

OPEN(open)
OPEN(open64)
