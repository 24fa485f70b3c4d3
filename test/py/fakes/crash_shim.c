/* Ends a process at its n-th durable act, and records what it wrote.

   A library for LD_PRELOAD. Durable acts are changes of files below a directory (writes,
   truncations, renames, removals, links, new files), fsync, and what is sent over a
   socket. `crash_begin` starts the count. Count and point are in a shared file, so that
   another process can move the point while this one runs.

   The record is for a power cut: every change of a file with its data, and the begin and
   end of every fsync, in the order in which they took effect.  */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

struct shared {
  int64_t count, point;
  char what[PATH_MAX];
};

static struct shared *state;
static char top[PATH_MAX];
static size_t top_size;
static int record = -1;
static int64_t syncs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define NEXT(name) \
  static __typeof__(name) *next; \
  if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* Logs and SQLite's shared memory survive nothing and promise nothing. */
static int is_ours(const char *path)
{
  size_t size = strlen(path);
  return strncmp(path, top, top_size) == 0 && !strstr(path, "/var/log/")
         && !(size > 4 && strcmp(path + size - 4, "-shm") == 0);
}

static int path_of(int fd, char *path)
{
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, PATH_MAX - 1);
  path[size < 0 ? 0 : size] = 0;
  return size > 0 && is_ours(path);
}

static int full_path(int dir, const char *path, char *result)
{
  char base[PATH_MAX] = "";
  if (path[0] != '/') {
    if (dir == AT_FDCWD) {
      if (!getcwd(base, sizeof base)) return 0;
    } else {
      char link[64];
      snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
      ssize_t size = readlink(link, base, sizeof base - 1);
      if (size < 0) return 0;
      base[size] = 0;
    }
    strncat(base, "/", sizeof base - strlen(base) - 1);
  }
  snprintf(result, PATH_MAX, "%.2000s%.2000s", base, path);
  return is_ours(result);
}

/* Counts an act; ends the process instead of the act at the point. */
static void act(const char *kind, const char *path)
{
  int64_t number = __atomic_add_fetch(&state->count, 1, __ATOMIC_SEQ_CST);
  if (number != __atomic_load_n(&state->point, __ATOMIC_SEQ_CST)) return;
  snprintf(state->what, sizeof state->what, "%s %.3000s", kind, path);
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

static void note(const char *kind, const char *path, int64_t number, int64_t size,
                 const struct iovec *parts, int count)
{
  char head[PATH_MAX * 2];
  if (record < 0) return;
  int length = snprintf(head, sizeof head, "%s %lld %lld %s\n", kind,
                        (long long)number, (long long)size, path);
  struct iovec all[count + 1];
  all[0].iov_base = head;
  all[0].iov_len = length;
  for (int i = 0; i < count; i++) all[i + 1] = parts[i];
  if (syscall(SYS_writev, record, all, count + 1) < 0) abort();
}

__attribute__((visibility("default")))
int crash_begin(const char *directory, const char *shared_file, const char *record_file)
{
  int fd = syscall(SYS_openat, AT_FDCWD, shared_file, O_RDWR);
  if (fd < 0) return -1;
  void *found = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  syscall(SYS_close, fd);
  if (found == MAP_FAILED) return -1;
  if (record_file[0]) {
    fd = syscall(SYS_openat, AT_FDCWD, record_file,
                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    record = fcntl(fd, F_DUPFD_CLOEXEC, 700);
    syscall(SYS_close, fd);
  }
  strncpy(top, directory, sizeof top - 1);
  top_size = strlen(top);
  state = found;
  return 0;
}

static ssize_t written(int fd, const struct iovec *parts, int count, off_t offset,
                       const char *path)
{
  ssize_t done;
  act("write", path);
  pthread_mutex_lock(&lock);
  if (offset >= 0) {
    done = syscall(SYS_pwritev, fd, parts, count, offset, 0);
  } else {
    done = syscall(SYS_writev, fd, parts, count);
    int saved = errno;
    /* After an append, the position is behind the data. */
    offset = lseek(fd, 0, SEEK_CUR) - (done > 0 ? done : 0);
    errno = saved;
  }
  if (done > 0 && offset >= 0) {
    int saved = errno;
    struct iovec whole[count];
    size_t left = done;
    int used = 0;
    for (; used < count && left; used++) {
      whole[used] = parts[used];
      if (whole[used].iov_len > left) whole[used].iov_len = left;
      left -= whole[used].iov_len;
    }
    note("W", path, offset, done, whole, used);
    errno = saved;
  }
  pthread_mutex_unlock(&lock);
  return done;
}

static int is_socket(int fd)
{
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode);
}

ssize_t write(int fd, const void *data, size_t size)
{
  NEXT(write);
  char path[PATH_MAX];
  if (!state || fd == record) return next(fd, data, size);
  if (path_of(fd, path)) {
    struct iovec part = {(void *)data, size};
    return written(fd, &part, 1, -1, path);
  }
  if (is_socket(fd)) act("send", path);
  return next(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
  NEXT(writev);
  char path[PATH_MAX];
  if (state && path_of(fd, path)) return written(fd, parts, count, -1, path);
  return next(fd, parts, count);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
  NEXT(pwrite64);
  char path[PATH_MAX];
  if (!state || !path_of(fd, path)) return next(fd, data, size, offset);
  struct iovec part = {(void *)data, size};
  return written(fd, &part, 1, offset, path);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
  return pwrite64(fd, data, size, offset);
}

int ftruncate64(int fd, off64_t size)
{
  NEXT(ftruncate64);
  char path[PATH_MAX];
  if (!state || !path_of(fd, path)) return next(fd, size);
  act("truncate", path);
  pthread_mutex_lock(&lock);
  int result = next(fd, size);
  if (result == 0) note("T", path, size, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  return result;
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int synced(int fd, int (*next)(int))
{
  char path[PATH_MAX];
  if (!state || !path_of(fd, path)) return next(fd);
  act("fsync", path);
  pthread_mutex_lock(&lock);
  int64_t number = ((int64_t)getpid() << 32) + ++syncs;
  note("B", path, number, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  int result = next(fd);
  if (result == 0) {
    pthread_mutex_lock(&lock);
    note("E", path, number, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
  }
  return result;
}

int fsync(int fd)
{
  NEXT(fsync);
  return synced(fd, next);
}

int fdatasync(int fd)
{
  NEXT(fdatasync);
  return synced(fd, next);
}

/* Changes of directories: R from to, U path, N path (a new file). */
static int renamed(int from_dir, const char *from, int to_dir, const char *to)
{
  char source[PATH_MAX], target[PATH_MAX];
  int counts = state && full_path(to_dir, to, target);
  if (!counts) return syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
  full_path(from_dir, from, source);
  act("rename", target);
  pthread_mutex_lock(&lock);
  int result = syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
  if (result == 0) {
    struct iovec part = {source, strlen(source)};
    note("R", target, 0, part.iov_len, &part, 1);
  }
  pthread_mutex_unlock(&lock);
  return result;
}

int rename(const char *from, const char *to)
{
  return renamed(AT_FDCWD, from, AT_FDCWD, to);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
  return renamed(from_dir, from, to_dir, to);
}

static int removed(int dir, const char *path, int flags)
{
  char full[PATH_MAX];
  if (!state || !full_path(dir, path, full))
    return syscall(SYS_unlinkat, dir, path, flags);
  act("unlink", full);
  pthread_mutex_lock(&lock);
  int result = syscall(SYS_unlinkat, dir, path, flags);
  if (result == 0) note("U", full, 0, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  return result;
}

int unlink(const char *path) { return removed(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return removed(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int dir, const char *path, int flags) { return removed(dir, path, flags); }

static int opened(int dir, const char *path, int flags, mode_t mode)
{
  char full[PATH_MAX];
  struct stat info;
  if (!state || !(flags & (O_CREAT | O_TRUNC)) || !full_path(dir, path, full))
    return syscall(SYS_openat, dir, path, flags, mode);
  int is_new = stat(full, &info) != 0;
  if (!is_new && !(flags & O_TRUNC))
    return syscall(SYS_openat, dir, path, flags, mode);
  act(is_new ? "create" : "truncate", full);
  pthread_mutex_lock(&lock);
  int fd = syscall(SYS_openat, dir, path, flags, mode);
  if (fd >= 0) note(is_new ? "N" : "T", full, 0, 0, NULL, 0);
  pthread_mutex_unlock(&lock);
  return fd;
}

#define OPEN(name, dir, ...) \
  int name(__VA_ARGS__, ...) \
  { \
    va_list rest; \
    va_start(rest, flags); \
    mode_t mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0; \
    va_end(rest); \
    return opened(dir, path, flags, mode); \
  }

OPEN(open, AT_FDCWD, const char *path, int flags)
OPEN(open64, AT_FDCWD, const char *path, int flags)
OPEN(openat, dir, int dir, const char *path, int flags)
OPEN(openat64, dir, int dir, const char *path, int flags)

ssize_t send(int fd, const void *data, size_t size, int flags)
{
  NEXT(send);
  if (state) act("send", "");
  return next(fd, data, size, flags);
}

ssize_t sendto(int fd, const void *data, size_t size, int flags,
               const struct sockaddr *address, socklen_t length)
{
  NEXT(sendto);
  if (state) act("send", "");
  return next(fd, data, size, flags, address, length);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
  NEXT(sendmsg);
  if (state) act("send", "");
  return next(fd, message, flags);
}
