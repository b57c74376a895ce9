#include "transport/bootstrap/membership/rank_status.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tutti::bootstrap {

namespace {

constexpr size_t kMostSenders = 1024;
constexpr size_t kMostWaitedFor = 64;

// Returns the senders with the most bytes.
std::vector<std::pair<int, uint64_t>> busiest(const Activity& activity) {
  std::vector<std::pair<int, uint64_t>> senders(activity.received.begin(), activity.received.end());
  std::ranges::stable_sort(senders, std::greater<>(), &std::pair<int, uint64_t>::second);
  if (senders.size() > kMostSenders) senders.resize(kMostSenders);
  return senders;
}

}  // namespace

void put(FrameWriter& frame, const Activity& activity) {
  frame.put(activity.calls).put(activity.bytes).put(activity.waited_ns);
  frame.put_text(cut_text(activity.current)).put(activity.current_ns);
  const size_t waited_for = std::min(activity.waits_for.size(), kMostWaitedFor);
  frame.put(static_cast<uint32_t>(waited_for));
  for (size_t i = 0; i < waited_for; ++i) frame.put(int32_t{activity.waits_for[i]});
  const auto senders = busiest(activity);
  frame.put(static_cast<uint32_t>(senders.size()));
  for (const auto& [sender, bytes] : senders) frame.put(int32_t{sender}).put(bytes);
}

Activity get_activity(FrameReader& frame) {
  Activity activity;
  activity.calls = frame.get<uint64_t>();
  activity.bytes = frame.get<uint64_t>();
  activity.waited_ns = frame.get<int64_t>();
  activity.current = frame.get_text();
  activity.current_ns = frame.get<int64_t>();
  const auto waited_for = frame.get<uint32_t>();
  for (uint32_t i = 0; i < waited_for && frame.ok(); ++i) {
    activity.waits_for.push_back(frame.get<int32_t>());
  }
  const auto senders = frame.get<uint32_t>();
  for (uint32_t i = 0; i < senders && frame.ok(); ++i) {
    const auto sender = frame.get<int32_t>();
    activity.received[sender] = frame.get<uint64_t>();
  }
  return activity;
}

std::string status_frame(const RankStatus& status) {
  FrameWriter frame(FrameType::status);
  frame.put(int32_t{status.rank})
      .put(int32_t{status.size})
      .put(static_cast<uint8_t>(status.state))
      .put_text(status.host)
      .put(status.pid)
      .put_text(status.address)
      .put(status.port);
  put(frame, status.activity);
  return frame.finish();
}

RankStatus get_status(FrameReader& frame) {
  RankStatus status;
  status.rank = frame.get<int32_t>();
  status.size = frame.get<int32_t>();
  status.state = static_cast<RankState>(frame.get<uint8_t>());
  status.host = frame.get_text();
  status.pid = frame.get<int64_t>();
  status.address = frame.get_text();
  status.port = frame.get<uint16_t>();
  status.activity = get_activity(frame);
  return status;
}

}  // namespace tutti::bootstrap
