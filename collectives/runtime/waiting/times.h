// The stages of waiting for another rank: a wait spins or yields, sleeps, asks its peers where the
// call stalls, and reports it.
#pragma once

#include <chrono>
#include <cstdint>

namespace tutti::internal {

// A wait spins until this long after the last progress, and then sleeps (backoff.h).
inline constexpr int64_t kSpinNs = 200'000;
// Maximum of the adaptive spinning time, on transports that wake slowly.
inline constexpr int64_t kMostSpinNs = 3'000'000;
// A wait yields until this long after the last progress if ranks share cores, and then sleeps.
inline constexpr int64_t kYieldNs = 2'000'000;
inline constexpr std::chrono::milliseconds kLongestSleep(50);
// Time that a thread sleeps while another thread makes progress on the call that it waits for.
inline constexpr std::chrono::microseconds kNap(50);
// The progress thread takes naps until this long after the last progress, and then sleeps.
inline constexpr int64_t kNapsNs = 2'000'000;
// Interval at which the progress thread makes progress while other threads of the process wait.
inline constexpr std::chrono::milliseconds kWhileOthersWait(1);
// Longest time between two calls of the user's waiting hook (callbacks.h) while nothing progresses.
inline constexpr std::chrono::milliseconds kBetweenHooks(1);

// Interval at which a stalled call is examined, and times after which it asks its peers, asks
// again, and logs a warning (stall_watch.h).
inline constexpr int64_t kLookAgainNs = 5'000'000;
inline constexpr int64_t kAskAfterNs = 200'000'000;
inline constexpr int64_t kAskAgainNs = 1'000'000'000;  // longest interval; at first it is less
inline constexpr int64_t kSayAfterNs = 10'000'000'000;

// Polling intervals of a rank that waits for an agreement.
inline constexpr std::chrono::microseconds kLook(200);  // interval while other calls progress
inline constexpr std::chrono::milliseconds kLookAtNothing(10);  // interval without other calls

}  // namespace tutti::internal
