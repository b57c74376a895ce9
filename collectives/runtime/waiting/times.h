// The times of waiting for another rank, one behind the other: a wait spins, yields, sleeps; asks
// where the call stalls; says so.
#pragma once

#include <chrono>
#include <cstdint>

namespace tutti::internal {

// How long a wait spins or yields before it sleeps (backoff.h), from its last progress.
inline constexpr int64_t kSpinNs = 200'000;
inline constexpr int64_t kMostSpinNs = 3'000'000;  // on transports that wake slowly
inline constexpr int64_t kYieldNs = 200'000;
inline constexpr std::chrono::milliseconds kLongestSleep(50);
// While another thread is at work on what would be slept on.
inline constexpr std::chrono::microseconds kNap(50);
// Between two calls of what the user wants to be called at (callbacks.h).
inline constexpr std::chrono::milliseconds kBetweenHooks(1);

// A call that stalls looks, asks and warns after these times (stall_watch.h).
inline constexpr int64_t kLookAgainNs = 5'000'000;
inline constexpr int64_t kAskAfterNs = 200'000'000;
inline constexpr int64_t kAskAgainNs = 1'000'000'000;  // at the latest; sooner early on
inline constexpr int64_t kSayAfterNs = 10'000'000'000;

// A rank that waits for an agreement looks for it this often.
inline constexpr std::chrono::microseconds kLook(200);          // between moves of other calls
inline constexpr std::chrono::milliseconds kLookAtNothing(10);  // where there are none

}  // namespace tutti::internal
