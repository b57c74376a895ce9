#include "tests/bindings/mpi/window_trial.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace tutti::test {

namespace {

constexpr size_t kSmallCell = 1 << 10;
constexpr size_t kLargeCell = 96 << 10;  // accumulates of this size take several segments

bool is_passive(WindowTrial::Epoch epoch) {
  return epoch == WindowTrial::all_locked || epoch == WindowTrial::locked;
}

}  // namespace

WindowTrial::WindowTrial(const Group& group, RandomDraws& dice, Scope scope)
    : group_(group),
      dice_(dice),
      scope_(scope),
      source_(static_cast<Source>(dice.draw(scope == Scope::served ? 2 : 3))) {
  cell_ = dice_.draw(6) == 0 ? kLargeCell : kSmallCell;
  for (int rank = 0; rank < group_.size; ++rank) {
    cells_.push_back(static_cast<size_t>(dice_.draw(4)));  // some ranks have no cells
    units_.push_back(1 << dice_.draw(4));
    models_.emplace_back(cells_.back() * cell_);
    kinds_.emplace_back(cells_.back());
    seeds_.emplace_back(cells_.back());
  }
  make_window();
  check_attributes();
}

void WindowTrial::make_window() {
  const auto own = static_cast<size_t>(group_.rank);
  const auto bytes = static_cast<MPI_Aint>(models_[own].size());
  const int unit = units_[own];
  [[maybe_unused]] const bool large = dice_.flip();
  if (source_ == allocated) {
#if MPI_VERSION >= 4
    if (large) {
      MPI_Win_allocate_c(bytes, unit, MPI_INFO_NULL, group_.comm, static_cast<void*>(&memory_),
                         &win_);
      return;
    }
#endif
    MPI_Win_allocate(bytes, unit, MPI_INFO_NULL, group_.comm, static_cast<void*>(&memory_), &win_);
    return;
  }
  if (source_ == of_library_memory) {
    if (bytes > 0) MPI_Alloc_mem(bytes, MPI_INFO_NULL, static_cast<void*>(&memory_));
  } else {
    programs_.resize(models_[own].size());
    memory_ = programs_.data();
  }
#if MPI_VERSION >= 4
  if (large) {
    MPI_Win_create_c(memory_, bytes, unit, MPI_INFO_NULL, group_.comm, &win_);
    return;
  }
#endif
  MPI_Win_create(memory_, bytes, unit, MPI_INFO_NULL, group_.comm, &win_);
}

WindowTrial::~WindowTrial() {
  MPI_Win_free(&win_);
  if (source_ == of_library_memory && memory_ != nullptr) MPI_Free_mem(memory_);
}

void WindowTrial::check_attributes() {
  const auto own = static_cast<size_t>(group_.rank);
  void* base = nullptr;
  MPI_Aint* bytes = nullptr;
  int* unit = nullptr;
  int* flavor = nullptr;
  int found = 0;
  MPI_Win_get_attr(win_, MPI_WIN_BASE, static_cast<void*>(&base), &found);
  MPI_Win_get_attr(win_, MPI_WIN_SIZE, static_cast<void*>(&bytes), &found);
  MPI_Win_get_attr(win_, MPI_WIN_DISP_UNIT, static_cast<void*>(&unit), &found);
  MPI_Win_get_attr(win_, MPI_WIN_CREATE_FLAVOR, static_cast<void*>(&flavor), &found);
  if (!models_[own].empty()) expect<bool>("MPI_WIN_BASE", group_, {base == memory_}, {true});
  expect<int64_t>("attributes of a window", group_, {*bytes, *unit, *flavor},
                  {static_cast<int64_t>(models_[own].size()), units_[own],
                   source_ == allocated ? MPI_WIN_FLAVOR_ALLOCATE : MPI_WIN_FLAVOR_CREATE});
}

// ---- drawing

void WindowTrial::draw() {
  const bool by_fences = dice_.flip() || scope_ == Scope::careful;
  epoch_ = by_fences ? fences : static_cast<Epoch>(dice_.draw(4));
  const auto kinds = static_cast<int64_t>(all_kinds().size());
  accesses_.clear();
  for (int target = 0; target < group_.size; ++target) {
    for (size_t i = 0; i < cells_[static_cast<size_t>(target)]; ++i) {
      const Kind* kind = nullptr;
      do {
        kind = &all_kinds()[static_cast<size_t>(dice_.draw(kinds))];
      } while (scope_ == Scope::careful && std::ranges::count(kind->mask, false) > 0);
      kinds_[static_cast<size_t>(target)][i] = kind;
      seeds_[static_cast<size_t>(target)][i] = dice_.common();
      draw_cell(target, i * cell_);
    }
  }
}

Access WindowTrial::draw_access(int target, size_t start, const Kind& kind, bool is_single) {
  Access access;
  access.target = target;
  access.kind = &kind;
  access.origin = static_cast<int>(dice_.draw(group_.size));
  const size_t room = cell_ / kind.extent;
  const int64_t most = static_cast<int64_t>(room / 2);
  access.count = static_cast<int>(dice_.draw(dice_.flip() ? most + 1 : std::min<int64_t>(most, 4)));
  if (is_single) access.count = 1;
  size_t at = static_cast<size_t>(dice_.draw(static_cast<int64_t>(room) - 2 * access.count + 1));
  while (at * kind.extent % static_cast<size_t>(units_[static_cast<size_t>(target)]) != 0) --at;
  access.place = start + at * kind.extent;
  access.origin_form = static_cast<int>(dice_.flip() ? 0 : dice_.draw(Layout::kForms));
  access.target_form = static_cast<int>(dice_.flip() ? 0 : dice_.draw(Layout::kForms));
  access.result_form = static_cast<int>(dice_.flip() ? 0 : dice_.draw(Layout::kForms));
  access.seed = dice_.common();
  return access;
}

// Draws accesses that may be concurrent in MPI: one write, or reads, or updates by one operator.
void WindowTrial::draw_cell(int target, size_t start) {
  const Kind& kind = *kinds_[static_cast<size_t>(target)][start / cell_];
  const bool careful = scope_ == Scope::careful;
  const int64_t what = dice_.draw(careful ? (source_ == allocated ? 3 : 2) : 5);
  const MPI_Op op =
      kind.ops.empty()
          ? MPI_REPLACE
          : kind.ops[static_cast<size_t>(dice_.draw(static_cast<int64_t>(kind.ops.size())))];
  const int64_t accesses = what == 1 || (what == 2 && op != MPI_REPLACE) ? dice_.draw(6) : 1;
  for (int64_t i = 0; i < accesses; ++i) {
    Access access = draw_access(target, start, kind, what == 4);
    if (what == 0) access.call = Access::put;
    if (what == 1) access.call = Access::get;
    if (what == 2) {
      access.call = Access::accumulate;
      access.op = op;
      if (careful) access.origin_form = access.target_form = 0;
    }
    if (what >= 3) {
      const MPI_Op some[] = {op, MPI_REPLACE, MPI_NO_OP};
      access.op = some[dice_.draw(3)];
      access.call = Access::get_accumulate;
      if (what == 4) {
        access.call =
            kind.is_integer && dice_.flip() ? Access::compare_and_swap : Access::fetch_and_op;
        if (access.call == Access::compare_and_swap) access.op = MPI_OP_NULL;
        access.origin_form = access.target_form = access.result_form = 0;
      }
    }
    accesses_.push_back(access);
  }
}

// ---- epochs

void WindowTrial::fill() {
  for (size_t rank = 0; rank < models_.size(); ++rank) {
    for (size_t i = 0; i < cells_[rank]; ++i) {
      const Kind& kind = *kinds_[rank][i];
      const std::vector<std::byte> elements =
          elements_of(kind, cell_ / kind.extent, seeds_[rank][i]);
      std::ranges::copy(elements, models_[rank].data() + i * cell_);
    }
  }
  const std::vector<std::byte>& own = models_[static_cast<size_t>(group_.rank)];
  std::ranges::copy(own, memory_);
}

void WindowTrial::lock_own(bool locks) {
  if (!is_passive(epoch_)) return;
  if (locks) {
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, group_.rank, 0, win_);
  } else {
    MPI_Win_unlock(group_.rank, win_);
  }
}

void WindowTrial::open() {
  lock_own(true);
  fill();
  lock_own(false);
  MPI_Group all = MPI_GROUP_NULL;
  switch (epoch_) {
    case fences:
      MPI_Win_fence(MPI_MODE_NOPRECEDE, win_);
      break;
    case all_locked:
      MPI_Barrier(group_.comm);
      MPI_Win_lock_all(0, win_);
      break;
    case locked:
      MPI_Barrier(group_.comm);
      break;
    case posted:
      MPI_Win_get_group(win_, &all);
      MPI_Win_post(all, 0, win_);
      MPI_Win_start(all, 0, win_);
      MPI_Group_free(&all);
      break;
  }
}

void WindowTrial::access() {
  buffers_.assign(accesses_.size(), {});
  for (size_t i = 0; i < accesses_.size(); ++i) {
    const Access& access = accesses_[i];
    const bool is_own = access.origin == group_.rank;
    if (is_own && epoch_ == locked) {
      const bool exclusive = dice_.draw_own(2) == 0;
      MPI_Win_lock(exclusive ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, access.target, 0, win_);
    }
    const bool as_request =
        is_passive(epoch_) && dice_.draw_own(3) == 0 && access.call <= Access::get_accumulate;
    MPI_Request request = MPI_REQUEST_NULL;
    if (is_own) make(access, buffers_[i], as_request ? &request : nullptr);
    if (is_own && as_request) MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (is_own && epoch_ == all_locked && dice_.draw_own(3) == 0) {
      MPI_Win_flush(access.target, win_);
    }
    if (is_own && epoch_ == locked) MPI_Win_unlock(access.target, win_);
  }
  int nothing = 0;
  if (epoch_ == fences) MPI_Put(&nothing, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win_);
}

void WindowTrial::close() {
  int done = 0;
  switch (epoch_) {
    case fences:
      MPI_Win_fence(MPI_MODE_NOSUCCEED, win_);
      break;
    case all_locked:
      MPI_Win_flush_local_all(win_);
      MPI_Win_flush_all(win_);
      MPI_Win_unlock_all(win_);
      MPI_Barrier(group_.comm);
      break;
    case locked:
      MPI_Barrier(group_.comm);
      break;
    case posted:
      MPI_Win_complete(win_);
      if (dice_.flip()) {
        MPI_Win_wait(win_);
      } else {
        while (done == 0) MPI_Win_test(win_, &done);
      }
      MPI_Barrier(group_.comm);  // waits until the gets of other ranks have ended, too
      break;
  }
}

// ---- one access

void WindowTrial::make(const Access& access, Buffers& buffers, MPI_Request* request) {
  const Kind& kind = *access.kind;
  const auto count = static_cast<size_t>(access.count);
  const Layout origin(kind, access.count, access.origin_form);
  const Layout target(kind, access.count, access.target_form);
  const std::vector<std::byte> elements = elements_of(kind, count, access.seed);
  buffers.origin.resize(origin.bytes());
  origin.spread_out(elements.data(), buffers.origin.data());
  if (access.call == Access::put || access.call == Access::get) {
    move(access, origin, target, buffers, request);
  } else {
    combine(access, origin, target, buffers, request);
  }
}

void WindowTrial::move(const Access& access, const Layout& origin, const Layout& target,
                       Buffers& buffers, MPI_Request* request) {
  const MPI_Aint place =
      static_cast<MPI_Aint>(access.place) / units_[static_cast<size_t>(access.target)];
  const auto call = [&](auto put, auto get, auto... more) {
    if (access.call == Access::put) {
      put(buffers.origin.data(), origin.count(), origin.type(), access.target, place,
          target.count(), target.type(), win_, more...);
    } else {
      std::ranges::fill(buffers.origin, std::byte{0});
      get(buffers.origin.data(), origin.count(), origin.type(), access.target, place,
          target.count(), target.type(), win_, more...);
    }
  };
#if MPI_VERSION >= 4
  if (dice_.draw_own(2) == 0) {
    return request == nullptr ? call(MPI_Put_c, MPI_Get_c) : call(MPI_Rput_c, MPI_Rget_c, request);
  }
#endif
  request == nullptr ? call(MPI_Put, MPI_Get) : call(MPI_Rput, MPI_Rget, request);
}

void WindowTrial::combine(const Access& access, const Layout& origin, const Layout& target,
                          Buffers& buffers, MPI_Request* request) {
  const MPI_Aint place =
      static_cast<MPI_Aint>(access.place) / units_[static_cast<size_t>(access.target)];
  const Layout result(*access.kind, access.count, access.result_form);
  buffers.result.resize(result.bytes());
  const auto call = [&](auto accumulate, auto get_accumulate, auto... more) {
    if (access.call == Access::accumulate) {
      accumulate(buffers.origin.data(), origin.count(), origin.type(), access.target, place,
                 target.count(), target.type(), access.op, win_, more...);
    } else {
      get_accumulate(buffers.origin.data(), origin.count(), origin.type(), buffers.result.data(),
                     result.count(), result.type(), access.target, place, target.count(),
                     target.type(), access.op, win_, more...);
    }
  };
  if (access.call == Access::fetch_and_op) {
    MPI_Fetch_and_op(buffers.origin.data(), buffers.result.data(), access.kind->type, access.target,
                     place, access.op, win_);
    return;
  }
  if (access.call == Access::compare_and_swap) {
    buffers.compare = elements_of(*access.kind, 1, access.seed + 1);
    MPI_Compare_and_swap(buffers.origin.data(), buffers.compare.data(), buffers.result.data(),
                         access.kind->type, access.target, place, win_);
    return;
  }
#if MPI_VERSION >= 4
  if (dice_.draw_own(2) == 0) {
    return request == nullptr ? call(MPI_Accumulate_c, MPI_Get_accumulate_c)
                              : call(MPI_Raccumulate_c, MPI_Rget_accumulate_c, request);
  }
#endif
  request == nullptr ? call(MPI_Accumulate, MPI_Get_accumulate)
                     : call(MPI_Raccumulate, MPI_Rget_accumulate, request);
}

// ---- expected results

void WindowTrial::apply(const Access& access, Buffers* own) {
  const Kind& kind = *access.kind;
  const auto count = static_cast<size_t>(access.count);
  const Layout target(kind, access.count, access.target_form);
  std::byte* const place = model(access.target, access.place);
  std::vector<std::byte> there(count * kind.extent);
  target.gather(place, there.data());
  if (own != nullptr) own->wanted = there;
  if (access.call == Access::get || access.op == MPI_NO_OP) return;
  std::vector<std::byte> elements = elements_of(kind, count, access.seed);
  if (access.call == Access::compare_and_swap) {
    if (elements_of(kind, 1, access.seed + 1) == there) there = elements;
  } else if (access.call == Access::put || access.op == MPI_REPLACE) {
    there = elements;
  } else {
    MPI_Reduce_local(elements.data(), there.data(), access.count, kind.type, access.op);
  }
  target.spread_out(there.data(), place);
}

void WindowTrial::check() {
  for (size_t i = 0; i < accesses_.size(); ++i) {
    const Access& access = accesses_[i];
    const bool is_own = access.origin == group_.rank;
    apply(access, is_own ? &buffers_[i] : nullptr);
    if (!is_own || access.call == Access::put || access.call == Access::accumulate) continue;
    const bool is_get = access.call == Access::get;
    const Layout layout(*access.kind, access.count,
                        is_get ? access.origin_form : access.result_form);
    std::vector<std::byte> got(buffers_[i].wanted.size());
    layout.gather((is_get ? buffers_[i].origin : buffers_[i].result).data(), got.data());
    compare("a result", *access.kind, got.data(), buffers_[i].wanted.data(), got.size());
  }
  const auto own = static_cast<size_t>(group_.rank);
  for (size_t i = 0; i < cells_[own]; ++i) {
    compare("a window", *kinds_[own][i], memory_ + i * cell_, model(group_.rank, i * cell_),
            cell_ / kinds_[own][i]->extent * kinds_[own][i]->extent);
  }
}

void WindowTrial::compare(const char* what, const Kind& kind, const std::byte* got,
                          const std::byte* wanted, size_t bytes) {
  constexpr uint64_t kPrime = 1099511628211U;
  for (size_t i = 0; i < bytes; ++i) {
    if (!kind.mask[i % kind.extent]) continue;
    digest_ = (digest_ ^ static_cast<uint64_t>(got[i])) * kPrime;
    if (got[i] == wanted[i]) continue;
    expect<bool>(std::string(what) + " of " + kind.name + ", source " + std::to_string(source_) +
                     ", epoch " + std::to_string(epoch_) + ", byte " + std::to_string(i),
                 group_, {false}, {true});
    return;
  }
}

}  // namespace tutti::test
