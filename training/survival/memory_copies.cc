#include "training/survival/memory_copies.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/host_name.h"
#include "base/text.h"
#include "training/core/group.h"

namespace tutti::training {
namespace {

void fill(StatePart& part, const Json& state, std::span<const TensorPiece> pieces) {
  Json description = {{"state", state}, {"pieces", Json::array()}};
  size_t bytes = 0;
  for (const TensorPiece& piece : pieces) {
    description["pieces"].push_back(describe_piece(piece));
    bytes += piece.data.bytes();
  }
  part.description = description.dump();
  part.bytes.resize(bytes);
  std::byte* to = part.bytes.data();
  for (const TensorPiece& piece : pieces) {
    read_parts(piece,
               [&](std::span<const std::byte> bytes) { to = std::ranges::copy(bytes, to).out; });
  }
}

// Returns all distances from a rank to the holder of a copy. Distances that put the most copies on
// other hosts come first.
std::vector<int> distances_by_hosts(const std::vector<std::string>& hosts) {
  const size_t ranks = hosts.size();
  std::vector<std::pair<int64_t, int>> found;  // (copies on the same host, distance)
  for (size_t distance = 1; distance < ranks; ++distance) {
    int64_t beside = 0;
    for (size_t rank = 0; rank < ranks; ++rank) {
      beside += hosts[rank] == hosts[(rank + distance) % ranks] ? 1 : 0;
    }
    found.emplace_back(beside, static_cast<int>(distance));
  }
  std::ranges::sort(found);
  std::vector<int> distances;
  for (const auto& [beside, distance] : found) distances.push_back(distance);
  return distances;
}

// Returns the description of a part that is sent to the other ranks.
Json description_of(const StatePart& part) {
  return {{"epoch", part.epoch},
          {"step", part.step},
          {"rank", part.rank},
          {"ranks", part.ranks},
          {"description", part.description}};
}

// The parts of a generation that survivors have.
struct Parts {
  // key: a rank; value: the survivor that has the rank's part, and the part's description
  std::map<int, std::pair<int, std::string>> parts;
  int ranks = 0;
  bool all_there() const { return std::ssize(parts) == ranks; }
};

}  // namespace

MemoryCopies::MemoryCopies(int copies) {
  for (Generation& generation : generations_) {
    for (int part = 0; part <= copies; ++part) generation.push_back(std::make_shared<StatePart>());
  }
}

void MemoryCopies::look_around(Communicator& world) {
  if (looked_around_) return;
  distances_ = distances_by_hosts(texts_of_all(world, host_name()));
  distances_.resize(std::min(distances_.size(), generations_[0].size() - 1));
  looked_around_ = true;
}

// The received copy overwrites the copy of two generations ago.
void MemoryCopies::exchange(Communicator& world, int distance, const StatePart& own,
                            StatePart& copy) {
  const int size = world.size();
  const int to = (world.rank() + distance) % size;
  const int from = (world.rank() - distance + size) % size;
  const std::array<uint64_t, 2> sent = {own.description.size(), own.bytes.size()};
  std::array<uint64_t, 2> coming{};
  Work sizes = world.recv_async({coming.data(), 2, DType::u64}, from);
  world.send({sent.data(), 2, DType::u64}, to);
  sizes.wait();
  copy.description.resize(coming[0]);
  copy.bytes.resize(coming[1]);
  Work description = world.recv_async({copy.description.data(), coming[0], DType::u8}, from);
  Work bytes = world.recv_async({copy.bytes.data(), coming[1], DType::u8}, from);
  world.send({own.description.data(), sent[0], DType::u8}, to);
  world.send({own.bytes.data(), sent[1], DType::u8}, to);
  description.wait();
  bytes.wait();
  copy.rank = from;
  copy.whole = true;
}

void MemoryCopies::keep(Communicator& world, int64_t step, const Json& state,
                        std::span<const TensorPiece> pieces) {
  look_around(world);
  const Generation& generation = generations_[next_];
  for (const auto& part : generation) {
    part->whole = false;
    part->epoch = epoch_;
    part->step = step;
    part->ranks = world.size();
  }
  StatePart& own = *generation[0];
  fill(own, state, pieces);
  own.rank = world.rank();
  own.whole = true;
  for (size_t copy = 0; copy < distances_.size(); ++copy) {
    exchange(world, distances_[copy], own, *generation[copy + 1]);
  }
  next_ = 1 - next_;
  begun_ = true;
}

MemoryCopies::Found MemoryCopies::find(Communicator& survivors, bool spare) {
  ++epoch_;
  looked_around_ = false;
  std::vector<std::shared_ptr<StatePart>> held;
  Json own = {{"begun", spare || begun_}, {"parts", Json::array()}};
  for (const Generation& generation : generations_) {
    for (const auto& part : generation) {
      if (!part->whole) continue;
      held.push_back(part);
      own["parts"].push_back(description_of(*part));
    }
  }
  std::map<std::pair<int64_t, int64_t>, Parts> found;  // key: step and epoch
  Found result{.state = nullptr, .begun = true};
  int holder = 0;
  for (const std::string& text : texts_of_all(survivors, own.dump())) {
    const Json of_rank = Json::parse(text);
    result.begun = result.begun && of_rank.at("begun").get<bool>();
    for (const Json& part : of_rank.at("parts")) {
      Parts& state = found[{part.at("step").get<int64_t>(), part.at("epoch").get<int64_t>()}];
      state.ranks = part.at("ranks").get<int>();
      state.parts.try_emplace(part.at("rank").get<int>(), holder,
                              part.at("description").get<std::string>());
    }
    ++holder;
  }
  const auto newest = std::find_if(found.rbegin(), found.rend(),
                                   [](const auto& at) { return at.second.all_there(); });
  begun_ = newest != found.rend();
  if (!begun_) {
    // Before the first step no state can be lost.
    if (!found.empty() && found.rbegin()->first.first == 0) result.begun = false;
    return result;
  }
  const auto& [step, epoch] = newest->first;
  std::vector<KeptState::Part> parts;
  for (const auto& [rank, part] : newest->second.parts) {
    parts.push_back(
        {.holder = part.first, .kept = nullptr, .description = Json::parse(part.second)});
  }
  for (const auto& part : held) {
    if (part->step != step || part->epoch != epoch) continue;
    parts[static_cast<size_t>(part->rank)].kept = part;
    // All ranks must keep this state until they have a newer one, so the next state is written to
    // the other generation.
    next_ = std::ranges::count(generations_[0], part) > 0 ? 1 : 0;
  }
  result.state = std::make_shared<KeptState>(survivors, step, std::move(parts));
  return result;
}

int64_t MemoryCopies::bytes() const {
  size_t bytes = 0;
  for (const Generation& generation : generations_) {
    for (const auto& part : generation) bytes += part->bytes.capacity();
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace tutti::training
