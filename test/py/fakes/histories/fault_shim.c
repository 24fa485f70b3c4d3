/* Bends the clock and the disk of a node's programs.

   A library for LD_PRELOAD. The file /etc/default/ganeti-faults, which each isolated node
   has for itself, says how: nanoseconds that are added to the time of day, milliseconds
   that each fsync takes longer, and whether the disk below /var/lib/ganeti is full. Other
   processes change it while programs run. Monotonic clocks are never bent: no real clock
   of that kind jumps.  */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define DATA "/var/lib/ganeti/"

struct faults {
  int64_t skew_ns, sync_ms, is_full;
};

static volatile struct faults *faults;

#define NEXT(name) \
  static __typeof__(name) *next; \
  if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void)
{
  int fd = syscall(SYS_openat, AT_FDCWD, "/etc/default/ganeti-faults",
                   O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  void *found = mmap(NULL, sizeof *faults, PROT_READ, MAP_SHARED, fd, 0);
  syscall(SYS_close, fd);
  if (found != MAP_FAILED) faults = found;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
  NEXT(clock_gettime);
  int result = next(clock, time);
  if (result == 0 && faults && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t now = time->tv_sec * 1000000000LL + time->tv_nsec + faults->skew_ns;
    time->tv_sec = now / 1000000000;
    time->tv_nsec = now % 1000000000;
  }
  return result;
}

int gettimeofday(struct timeval *time, void *zone)
{
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *result)
{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result) *result = now.tv_sec;
  return now.tv_sec;
}

/* Whether a write to an open file fails, since the disk is full. */
static int fails(int fd)
{
  char link[64], path[PATH_MAX];
  if (!faults || !faults->is_full) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, sizeof path - 1);
  if (size <= 0) return 0;
  path[size] = 0;
  if (strncmp(path, DATA, strlen(DATA)) != 0) return 0;
  errno = ENOSPC;
  return 1;
}

ssize_t write(int fd, const void *data, size_t size)
{
  NEXT(write);
  return fails(fd) ? -1 : next(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
  NEXT(writev);
  return fails(fd) ? -1 : next(fd, parts, count);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
  NEXT(pwrite64);
  return fails(fd) ? -1 : next(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
  return pwrite64(fd, data, size, offset);
}

static void slow_down(void)
{
  if (faults && faults->sync_ms > 0) {
    struct timespec pause = {faults->sync_ms / 1000, faults->sync_ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
  }
}

int fsync(int fd)
{
  NEXT(fsync);
  slow_down();
  return next(fd);
}

int fdatasync(int fd)
{
  NEXT(fdatasync);
  slow_down();
  return next(fd);
}
