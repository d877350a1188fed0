/* What the tormentor does to a process from within: steps its wall clock, and makes fdatasync slow.
 *
 * LD_PRELOAD=shim.so CHAOS_CONTROL=/folder/%d: the file (%d is the process id) is made on first use and mapped. A
 * forked child maps its own. It holds three numbers: the offset of the wall clock in ms, how long an fdatasync takes
 * in ms, and how many are under way. The monotonic clocks stay as they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
  volatile int64_t offset_ms, fsync_ms, syncing;
};

static struct control nothing;
static struct control *mapped;
static int (*real_clock)(clockid_t, struct timespec *);
static int (*real_sync)(int);

static void forget(void) { mapped = NULL; }

static struct control *control(void) {
  if (mapped) return mapped;
  struct control *found = &nothing;
  const char *pattern = getenv("CHAOS_CONTROL");
  char path[512];
  if (pattern) {
    snprintf(path, sizeof path, pattern, (int)getpid());
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file >= 0) {
      if (ftruncate(file, sizeof(struct control)) == 0) {
        void *at = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (at != MAP_FAILED) found = at;
      }
      close(file);
    }
  }
  mapped = found;
  return found;
}

__attribute__((constructor)) static void begin(void) {
  real_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  real_sync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  pthread_atfork(NULL, NULL, forget);
  control();
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  if (!real_clock) real_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int code = real_clock(clock, now);
  if (code == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t ns = now->tv_nsec + control()->offset_ms % 1000 * 1000000;
    now->tv_sec += control()->offset_ms / 1000;
    if (ns < 0) { ns += 1000000000; now->tv_sec--; }
    if (ns >= 1000000000) { ns -= 1000000000; now->tv_sec++; }
    now->tv_nsec = ns;
  }
  return code;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec exact;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &exact) != 0) return -1;
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *out) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (out) *out = exact.tv_sec;
  return exact.tv_sec;
}

int fdatasync(int file) {
  struct control *mine = control();
  if (mine->fsync_ms > 0) {
    struct timespec pause = {mine->fsync_ms / 1000, mine->fsync_ms % 1000 * 1000000};
    __atomic_add_fetch(&mine->syncing, 1, __ATOMIC_SEQ_CST);
    nanosleep(&pause, NULL);
    __atomic_sub_fetch(&mine->syncing, 1, __ATOMIC_SEQ_CST);
  }
  return real_sync(file);
}
