// Preloaded into a program, its clock is two minutes ahead: what doctor_test has for a host whose
// clock is wrong.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = ::syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += 120;
  return static_cast<int>(result);
}
