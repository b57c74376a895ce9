#include "training/survival/kept_state.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/checkpoint/tensor_piece.h"

namespace tutti::training {
namespace {

Manifest manifest_of(int64_t step, const std::vector<KeptState::Part>& parts) {
  Manifest manifest{.step = step, .files = std::vector<FileEntry>(parts.size())};
  std::map<std::string, TensorEntry> tensors;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const Json& description = parts[rank].description;
    if (rank == 0) manifest.state = description.at("state");
    add_described(description.at("pieces"), static_cast<int>(rank), tensors);
  }
  for (auto& [name, tensor] : tensors) manifest.tensors.push_back(std::move(tensor));
  arrange(manifest);
  return manifest;
}

// Returns the offset of each piece.
std::map<std::string, int64_t> places_in(const Json& description) {
  std::map<std::string, int64_t> places;
  int64_t end = 0;
  for (const Json& described : description.at("pieces")) {
    const DescribedPiece piece = described_piece(described);
    places[piece_name(piece.tensor.name, piece.slice, piece.first, piece.count)] = end;
    end += piece.bytes();
  }
  return places;
}

}  // namespace

KeptState::KeptState(Communicator& survivors, int64_t step, std::vector<Part> parts)
    : PiecewiseSource(cat("the ranks' memory of step ", step), manifest_of(step, parts)),
      survivors_(survivors),
      parts_(std::move(parts)) {
  for (const Part& part : parts_) places_.push_back(places_in(part.description));
}

const std::byte* KeptState::bytes_of(const StoredPiece& piece, const std::string& name,
                                     size_t first, size_t count) const {
  const auto part = static_cast<size_t>(piece.file);
  const int64_t begin = places_[part].at(name) + static_cast<int64_t>(first);
  if (parts_[part].kept != nullptr) return parts_[part].kept->bytes.data() + begin;
  const RequestedRange wanted{piece.file, begin, static_cast<int64_t>(count)};
  if (!fetched_) {
    wanted_.push_back(wanted);
    return nullptr;
  }
  if (served_ == wanted_.size() || wanted_[served_] != wanted) {
    throw Error(ErrorCode::internal, cat("reading ", name, " again, other data was requested"));
  }
  return received_.data() + place_of_wanted_[served_++];
}

// Collective. Returns the requests of all ranks, indexed by rank.
std::vector<std::vector<KeptState::RequestedRange>> KeptState::requests_of_all() const {
  const auto ranks = static_cast<size_t>(survivors_.size());
  const uint64_t own = wanted_.size() * sizeof(RequestedRange);
  std::vector<uint64_t> sizes(ranks);
  survivors_.all_gather({&own, 1, DType::u64}, {sizes.data(), ranks, DType::u64});
  const uint64_t total = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
  std::vector<std::byte> all(total);
  survivors_.all_gatherv({wanted_.data(), own, DType::u8}, {all.data(), total, DType::u8},
                         Blocks::of(sizes));
  std::vector<std::vector<RequestedRange>> requests(ranks);
  const std::byte* from = all.data();
  for (size_t rank = 0; rank < ranks; ++rank) {
    requests[rank].resize(sizes[rank] / sizeof(RequestedRange));
    if (sizes[rank] > 0) std::memcpy(requests[rank].data(), from, sizes[rank]);
    from += sizes[rank];
  }
  return requests;
}

void KeptState::fetch() {
  const std::vector<std::vector<RequestedRange>> requests = requests_of_all();
  const int own = survivors_.rank();
  const auto ranks = static_cast<size_t>(survivors_.size());
  const auto holder = [this](const RequestedRange& wanted) {
    return parts_[static_cast<size_t>(wanted.part)].holder;
  };
  std::vector<uint64_t> sent(ranks);
  std::vector<std::byte> sending;
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (const RequestedRange& wanted : requests[rank]) {
      if (holder(wanted) != own) continue;
      const std::byte* from =
          parts_[static_cast<size_t>(wanted.part)].kept->bytes.data() + wanted.first;
      sending.insert(sending.end(), from, from + wanted.count);
      sent[rank] += static_cast<uint64_t>(wanted.count);
    }
  }
  std::vector<uint64_t> taken(ranks);
  for (const RequestedRange& wanted : wanted_) {
    taken[static_cast<size_t>(holder(wanted))] += static_cast<uint64_t>(wanted.count);
  }
  std::vector<uint64_t> next(ranks);
  std::exclusive_scan(taken.begin(), taken.end(), next.begin(), uint64_t{0});
  received_.resize(std::accumulate(taken.begin(), taken.end(), uint64_t{0}));
  for (const RequestedRange& wanted : wanted_) {
    uint64_t& place = next[static_cast<size_t>(holder(wanted))];
    place_of_wanted_.push_back(place);
    place += static_cast<uint64_t>(wanted.count);
  }
  survivors_.all_to_allv({sending.data(), sending.size(), DType::u8}, Blocks::of(sent),
                         {received_.data(), received_.size(), DType::u8}, Blocks::of(taken));
  fetched_ = true;
}

}  // namespace tutti::training
