// Makes random data movements by every call, with datatypes that have gaps or another order on some
// ranks only. The expected results are computed from each rank's integers and their places in the
// type.
#include <algorithm>
#include <memory>
#include <stdexcept>

#include "tests/bindings/mpi/trial.h"

namespace tutti::test {
namespace {

using Ints = std::vector<int>;

// Locations of an element's integers in signature order, and the element's extent.
struct Layout {
  MPI_Datatype type;
  std::vector<int64_t> places;
  int64_t extent;

  int64_t ints() const { return static_cast<int64_t>(places.size()); }
  // Returns the location of the n-th integer of a run of elements.
  int64_t place(int64_t n) const { return n / ints() * extent + places[n % ints()]; }
};

// multiple of the number of integers in an element, for every layout
constexpr int64_t kUnit = 6;

class Layouts {
 public:
  Layouts() {
    all_.push_back({MPI_INT, {0}, 1});
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(3, MPI_INT, &type);
    MPI_Type_commit(&type);
    all_.push_back({type, {0, 1, 2}, 3});
    MPI_Datatype vector = MPI_DATATYPE_NULL;
    MPI_Type_vector(2, 1, 2, MPI_INT, &vector);
    MPI_Type_create_resized(vector, 0, 4 * sizeof(int), &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&vector);
    all_.push_back({type, {0, 2}, 4});
    const int lengths[] = {1, 1};
    const int places[] = {2, 0};
    MPI_Type_indexed(2, lengths, places, MPI_INT, &type);
    MPI_Type_commit(&type);
    all_.push_back({type, {2, 0}, 3});
  }
  // Each rank draws its own layout.
  const Layout& random(RandomDraws& dice) const {
    return all_[static_cast<size_t>(dice.draw_own(static_cast<int64_t>(all_.size())))];
  }

 private:
  std::vector<Layout> all_;
};

// The n-th integer that rank `from` sends to rank `to` (-1: to all).
int value(uint64_t seed, int from, int to, int64_t n) {
  const uint64_t mixed =
      (seed + static_cast<uint64_t>(from * 7919 + to * 104729 + n * 31)) * 0x9e3779b97f4a7c15;
  return static_cast<int>(mixed >> 40);
}

// The input or output buffer of a rank: one block of integers per rank, or a single block.
struct Side {
  const Layout* layout;
  Ints counts;  // length of each block, in elements
  Ints places;  // start of each block, in extents
  Ints data;

  // Allocates `units` of each block; if `spread`, with gaps between blocks and in reverse order.
  Side(const Layout& its_layout, const std::vector<int64_t>& units, bool spread)
      : layout(&its_layout) {
    int at = 0;
    counts.resize(units.size());
    places.resize(units.size());
    for (size_t i = 0; i < units.size(); ++i) {
      const size_t block = spread ? units.size() - 1 - i : i;
      counts[block] = static_cast<int>(units[block] * kUnit / layout->ints());
      places[block] = at;
      at += counts[block] + (spread ? 2 : 0);
    }
    data.assign(static_cast<size_t>((at + 1) * layout->extent), -7);
  }
  template <typename Value>
  void put(size_t block, Value value_of) {
    put_into(data, block, value_of);
  }
  template <typename Value>
  void put_into(Ints& to, size_t block, Value value_of) const {
    const int64_t start = places[block] * layout->extent;
    for (int64_t n = 0; n < counts[block] * layout->ints(); ++n) {
      to[static_cast<size_t>(start + layout->place(n))] = value_of(n);
    }
  }
};

enum class Kind : uint8_t {
  bcast,
  gather,
  gatherv,
  scatter,
  scatterv,
  allgather,
  allgatherv,
  alltoall,
  alltoallv,
  barrier
};
constexpr const char* kNames[] = {"Bcast",     "Gather",     "Gatherv",  "Scatter",   "Scatterv",
                                  "Allgather", "Allgatherv", "Alltoall", "Alltoallv", "Barrier"};

struct State {
  const Group& group;
  Kind kind;
  bool in_place;
  int root;
  uint64_t seed;
  Side from;
  Side to;
  Ints wanted;

  bool is_root() const { return group.rank == root; }
  bool replaces_input() const {
    if (kind == Kind::gather || kind == Kind::gatherv) return in_place && is_root();
    return in_place && (kind >= Kind::allgather && kind <= Kind::alltoallv);
  }
  bool replaces_output() const {
    return in_place && is_root() && (kind == Kind::scatter || kind == Kind::scatterv);
  }

  void call(MPI_Request* request) {
    const void* const in = replaces_input() ? MPI_IN_PLACE : from.data.data();
    void* const out = replaces_output() ? MPI_IN_PLACE : static_cast<void*>(to.data.data());
    const MPI_Datatype in_type = from.layout->type;
    const MPI_Datatype out_type = to.layout->type;
    const int in_count = from.counts[0];
    const int out_count = to.counts[0];
    const MPI_Comm comm = group.comm;
    switch (kind) {
      case Kind::bcast:
        request != nullptr ? MPI_Ibcast(out, out_count, out_type, root, comm, request)
                           : MPI_Bcast(out, out_count, out_type, root, comm);
        break;
      case Kind::gather:
        request != nullptr
            ? MPI_Igather(in, in_count, in_type, out, out_count, out_type, root, comm, request)
            : MPI_Gather(in, in_count, in_type, out, out_count, out_type, root, comm);
        break;
      case Kind::gatherv:
        request != nullptr ? MPI_Igatherv(in, in_count, in_type, out, to.counts.data(),
                                          to.places.data(), out_type, root, comm, request)
                           : MPI_Gatherv(in, in_count, in_type, out, to.counts.data(),
                                         to.places.data(), out_type, root, comm);
        break;
      case Kind::scatter:
        request != nullptr
            ? MPI_Iscatter(in, in_count, in_type, out, out_count, out_type, root, comm, request)
            : MPI_Scatter(in, in_count, in_type, out, out_count, out_type, root, comm);
        break;
      case Kind::scatterv:
        request != nullptr ? MPI_Iscatterv(in, from.counts.data(), from.places.data(), in_type, out,
                                           out_count, out_type, root, comm, request)
                           : MPI_Scatterv(in, from.counts.data(), from.places.data(), in_type, out,
                                          out_count, out_type, root, comm);
        break;
      case Kind::allgather:
        request != nullptr
            ? MPI_Iallgather(in, in_count, in_type, out, out_count, out_type, comm, request)
            : MPI_Allgather(in, in_count, in_type, out, out_count, out_type, comm);
        break;
      case Kind::allgatherv:
        request != nullptr ? MPI_Iallgatherv(in, in_count, in_type, out, to.counts.data(),
                                             to.places.data(), out_type, comm, request)
                           : MPI_Allgatherv(in, in_count, in_type, out, to.counts.data(),
                                            to.places.data(), out_type, comm);
        break;
      case Kind::alltoall:
        request != nullptr
            ? MPI_Ialltoall(in, in_count, in_type, out, out_count, out_type, comm, request)
            : MPI_Alltoall(in, in_count, in_type, out, out_count, out_type, comm);
        break;
      case Kind::alltoallv:
        request != nullptr
            ? MPI_Ialltoallv(in, from.counts.data(), from.places.data(), in_type, out,
                             to.counts.data(), to.places.data(), out_type, comm, request)
            : MPI_Alltoallv(in, from.counts.data(), from.places.data(), in_type, out,
                            to.counts.data(), to.places.data(), out_type, comm);
        break;
      case Kind::barrier:
        request != nullptr ? MPI_Ibarrier(comm, request) : MPI_Barrier(comm);
        break;
    }
  }

  // Prepares the output's initial and expected contents.
  void prepare() {
    const int me = group.rank;
    const auto own = [&](int to_whom) {
      return [this, me, to_whom](int64_t n) { return value(seed, me, to_whom, n); };
    };
    const auto ranks = static_cast<size_t>(group.size);
    const auto mine = static_cast<size_t>(me);
    const bool scatters = kind == Kind::scatter || kind == Kind::scatterv;
    const bool all = kind == Kind::alltoall || kind == Kind::alltoallv;
    const bool gathers = !scatters && !all && kind != Kind::bcast && kind != Kind::barrier;
    if (all || scatters) {
      for (size_t r = 0; r < ranks; ++r) from.put(r, own(static_cast<int>(r)));
    } else {
      from.put(0, own(-1));
    }
    if (kind == Kind::bcast && is_root()) to.put(0, own(-1));
    if (replaces_input() && gathers) to.put(mine, own(-1));
    if (replaces_input() && all) {
      for (size_t r = 0; r < ranks; ++r) to.put(r, own(static_cast<int>(r)));
    }
    wanted = to.data;
    const auto others = [&](int from_whom, int to_whom) {
      return [this, from_whom, to_whom](int64_t n) { return value(seed, from_whom, to_whom, n); };
    };
    const bool has_root = kind == Kind::gather || kind == Kind::gatherv;
    if (kind == Kind::bcast) to.put_into(wanted, 0, others(root, -1));
    if (scatters && !replaces_output()) to.put_into(wanted, 0, others(root, me));
    if (all || (gathers && (!has_root || is_root()))) {
      for (size_t r = 0; r < ranks; ++r) {
        to.put_into(wanted, r, others(static_cast<int>(r), all ? me : -1));
      }
    }
  }
};

// Returns, for each rank, the length in units of kUnit integers of the block that it exchanges with
// `rank`. The lengths are equal in both directions.
std::vector<int64_t> row_of(uint64_t seed, int rank, int size, int64_t most) {
  std::vector<int64_t> units;
  for (int r = 0; r < size; ++r) {
    const auto pair =
        static_cast<uint64_t>(std::min(r, rank)) * 64 + static_cast<uint64_t>(std::max(r, rank));
    units.push_back(static_cast<int64_t>((seed ^ pair * 0x9e3779b97f4a7c15) >> 33) % most);
  }
  return units;
}

}  // namespace

Trial random_movement(const Group& group, RandomDraws& dice) {
  static const Layouts layouts;
  const auto kind = static_cast<Kind>(dice.draw(10));
  const auto ranks = static_cast<size_t>(group.size);
  const auto mine = static_cast<size_t>(group.rank);
  constexpr int64_t kMost[] = {2, 10, 1500};
  const int64_t most = kMost[dice.draw(3)];
  const uint64_t seed = dice.common();
  const bool in_place = dice.flip();
  const auto root = static_cast<int>(dice.draw(group.size));
  const std::vector<int64_t> one(1, dice.draw(most));
  std::vector<int64_t> uneven(ranks);
  for (int64_t& units : uneven) units = dice.draw(most);
  const std::vector<int64_t> even(ranks, one[0]);
  const std::vector<int64_t> own(1, uneven[mine]);
  const std::vector<int64_t> row = row_of(seed, group.rank, group.size, most);

  std::vector<int64_t> from = one;
  std::vector<int64_t> to = one;
  bool spreads_from = false;
  bool spreads_to = false;
  if (kind == Kind::gather || kind == Kind::allgather) to = even;
  if (kind == Kind::scatter) from = even;
  if (kind == Kind::gatherv || kind == Kind::allgatherv) {
    from = own;
    to = uneven;
    spreads_to = true;
  }
  if (kind == Kind::scatterv) {
    from = uneven;
    to = own;
    spreads_from = true;
  }
  if (kind == Kind::alltoall) from = to = even;
  if (kind == Kind::alltoallv) {
    from = to = row;
    spreads_from = spreads_to = true;
  }
  const auto state =
      std::make_shared<State>(State{.group = group,
                                    .kind = kind,
                                    .in_place = in_place,
                                    .root = root,
                                    .seed = seed,
                                    .from = Side(layouts.random(dice), from, spreads_from),
                                    .to = Side(layouts.random(dice), to, spreads_to),
                                    .wanted = {}});
  state->prepare();
  return {.what = std::string(kNames[static_cast<size_t>(kind)]) + " of up to " +
                  std::to_string(most * kUnit) + (in_place ? " in place" : ""),
          .call = [state](MPI_Request* request, bool) { state->call(request); },
          .check =
              [state] {
                if (state->to.data != state->wanted) throw std::runtime_error("what was received");
              }};
}

}  // namespace tutti::test
