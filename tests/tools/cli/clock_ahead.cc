// Preloaded into a program, sets its clock two minutes ahead. doctor_test uses it for a host with a
// wrong clock.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = ::syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += 120;
  return static_cast<int>(result);
}
