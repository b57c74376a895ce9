#include "collectives/interchange/placement.h"

#include <algorithm>

#include "base/text.h"
#include "collectives/program/plan.h"

namespace tutti {

namespace {

// Limit over all gpus, so that a hostile file cannot exhaust memory.
constexpr int64_t kMostScratchChunks = 1 << 24;

}  // namespace

Placement::Placement(const MscclAlgorithm& algorithm, int32_t gpu)
    : collective_(algorithm.collective),
      shape_{.ranks = static_cast<int32_t>(algorithm.gpus.size()),
             .rank = gpu,
             .root = algorithm.root},
      program_{.input_chunks = algorithm.input_chunks, .output_chunks = algorithm.output_chunks},
      in_place_(algorithm.in_place),
      has_output_(collective_ != Collective::reduce || gpu == algorithm.root),
      classes_(size_classes(collective_, program_, shape_.ranks)),
      used_(classes_, 0) {
  if (collective_ == Collective::broadcast && gpu != algorithm.root) return;
  for (int32_t i = 0; i < program_.input_chunks; ++i) {
    const int32_t size = size_class(collective_, program_, shape_, Space::input, i);
    cells_[key('i', i)] = {.is_filled = true, .at = {Space::input, i, size}};
  }
}

int32_t Placement::place_of(Space space, int32_t chunk) const {
  return static_cast<int32_t>(location(collective_, program_, shape_, space, chunk));
}

Placement::Key Placement::key(char buffer, int32_t index) const {
  if (!in_place_) return {buffer, index};
  if (buffer == 'i') return {'x', place_of(Space::input, index)};
  if (buffer == 'o') return {'x', place_of(Space::output, index)};
  return {buffer, index};
}

int32_t Placement::output_of(const Key& key) const {
  const auto [buffer, index] = key;
  if (!has_output_ || buffer != (in_place_ ? 'x' : 'o')) return -1;
  const int32_t chunk = in_place_ ? index - place_of(Space::output, 0) : index;
  return chunk >= 0 && chunk < program_.output_chunks ? chunk : -1;
}

PlacedChunk Placement::new_scratch(int32_t size_class) {
  // A scratch chunk has a fixed size class, so each additional chunk of one class extends all
  // classes.
  const int64_t chunk = size_class + int64_t{classes_} * used_[size_class]++;
  if (chunk >= kMostScratchChunks / shape_.ranks) {
    throw Refusal{cat("needs more than ", kMostScratchChunks / shape_.ranks, " scratch chunks")};
  }
  const auto number = static_cast<int32_t>(chunk);
  scratch_chunks_ = std::max(scratch_chunks_, number + 1);
  return {Space::scratch, number, size_class};
}

PlacedChunk Placement::home(const Key& key, int32_t size_class) {
  const int32_t chunk = output_of(key);
  if (chunk >= 0 &&
      tutti::size_class(collective_, program_, shape_, Space::output, chunk) == size_class) {
    return {Space::output, chunk, size_class};
  }
  const auto [place, is_new] = scratch_.try_emplace({key, size_class});
  if (is_new) place->second = new_scratch(size_class);
  return place->second;
}

const Placement::Cell* Placement::input_under(int32_t output_chunk) const {
  if (in_place_) return nullptr;  // input and output are the same cell: nothing is lost
  const int32_t chunk = place_of(Space::output, output_chunk) - place_of(Space::input, 0);
  const auto found = cells_.find({'i', chunk});
  if (found == cells_.end() || found->second.at.space != Space::input) return nullptr;
  return &found->second;
}
Placement::Cell* Placement::input_under(int32_t output_chunk) {
  return const_cast<Cell*>(std::as_const(*this).input_under(output_chunk));
}

std::vector<PlacedChunk> Placement::read(const MscclRange& range) {
  std::vector<PlacedChunk> chunks;
  for (int32_t i = range.first; i < range.first + range.count; ++i) {
    Cell& cell = cells_[key(range.buffer, i)];
    if (!cell.is_filled) {
      throw Refusal{cat("reads chunk ", i, " of ", range.buffer, ", which was never written")};
    }
    --cell.reads_to_come;
    chunks.push_back(cell.at);
  }
  return chunks;
}

void Placement::expect_read(const MscclRange& range) {
  for (int32_t i = range.first; i < range.first + range.count; ++i) {
    ++cells_[key(range.buffer, i)].reads_to_come;
  }
}

bool Placement::would_lose_input(const MscclRange& written, const MscclRange& reading) const {
  for (int32_t i = written.first; i < written.first + written.count; ++i) {
    const int32_t output = output_of(key(written.buffer, i));
    const Cell* cell = output < 0 ? nullptr : input_under(output);
    if (cell == nullptr) continue;
    const bool reads_it = reading.buffer == 'i' && cell->at.chunk >= reading.first &&
                          cell->at.chunk < reading.first + reading.count;
    if (cell->reads_to_come > (reads_it ? 1 : 0)) return true;
  }
  return false;
}

std::vector<PlacedChunk> Placement::write(const MscclRange& range,
                                          const std::vector<int32_t>& size_classes,
                                          const std::vector<PlacedChunk>* kept,
                                          std::vector<Step>& steps) {
  std::vector<PlacedChunk> chunks;
  for (int32_t i = 0; i < range.count; ++i) {
    const Key cell = key(range.buffer, range.first + i);
    const PlacedChunk place = home(cell, size_classes[i]);
    if (Cell* input = place.space == Space::output ? input_under(place.chunk) : nullptr) {
      const bool stays = kept != nullptr && (*kept)[i].space == Space::input &&
                         (*kept)[i].chunk == input->at.chunk;
      if (input->reads_to_come > 0 && !stays) {
        const PlacedChunk saved = new_scratch(input->at.size_class);
        steps.push_back(copy(to_ranges({input->at}), to_ranges({saved})));
        input->at = saved;
      }
    }
    cells_[cell].is_filled = true;
    cells_[cell].at = place;
    chunks.push_back(place);
  }
  return chunks;
}

void Placement::finish(std::vector<Step>& steps) {
  if (!has_output_) return;
  std::vector<PlacedChunk> from;
  std::vector<PlacedChunk> to;
  for (int32_t i = 0; i < program_.output_chunks; ++i) {
    const Cell& cell = cells_[key('o', i)];
    if (!cell.is_filled) throw Refusal{cat("output chunk ", i, " is never written")};
    if (cell.at.space == Space::output) continue;
    const int32_t due = size_class(collective_, program_, shape_, Space::output, i);
    if (cell.at.size_class != due) {
      throw Refusal{cat("wrong chunk: output chunk ", i, " ends up with part ", cell.at.size_class,
                        " of the data, not ", due)};
    }
    from.push_back(cell.at);
    to.push_back({Space::output, i, due});
  }
  if (!to.empty()) steps.push_back(copy(to_ranges(from), to_ranges(to)));
}

RangeList to_ranges(const std::vector<PlacedChunk>& chunks) {
  RangeList ranges;
  for (const PlacedChunk& c : chunks) {
    if (!ranges.empty() && ranges.back().space == c.space &&
        ranges.back().first + ranges.back().count == c.chunk) {
      ++ranges.back().count;
    } else {
      ranges.push_back({c.space, c.chunk, 1});
    }
  }
  return ranges;
}

std::vector<int32_t> size_classes_of(const std::vector<PlacedChunk>& chunks) {
  std::vector<int32_t> classes;
  classes.reserve(chunks.size());
  for (const PlacedChunk& c : chunks) classes.push_back(c.size_class);
  return classes;
}

}  // namespace tutti
