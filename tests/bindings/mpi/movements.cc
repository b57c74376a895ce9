// Checks all data movements with datatypes, counts, roots and communicators against results that
// each rank computes itself. Some types have gaps on some ranks only, and some messages are in
// flight.
#include <mpi.h>

#include <algorithm>
#include <numeric>

#include "tests/bindings/mpi/checks.h"

namespace tutti::test {
namespace {

// Returns the start of block r if each block has n elements.
int64_t block_start(int64_t n, int r) { return n * r; }

class Movements {
 public:
  Movements(const Group& group, int64_t count) : group_(group), n_(count) {
    own_ = values_of<int>(group_.rank, n_);
    for (int r = 0; r < group_.size; ++r) append(gathered_, values_of<int>(r, n_));
  }

  void run() {
    all_gather();
    all_to_all();
    for (int root = 0; root < group_.size; ++root) {
      broadcast(root);
      gather(root);
      scatter(root);
    }
    MPI_Barrier(group_.comm);
  }

 private:
  static void append(std::vector<int>& to, const std::vector<int>& more) {
    to.insert(to.end(), more.begin(), more.end());
  }
  void check(const char* call, const std::vector<int>& got, const std::vector<int>& wanted) {
    expect(std::string(call) + " of " + std::to_string(n_), group_, got, wanted);
  }
  int n() const { return static_cast<int>(n_); }
  bool is(int root) const { return group_.rank == root; }

  void broadcast(int root) {
    std::vector<int> data = is(root) ? own_ : std::vector<int>(own_.size());
    MPI_Bcast(data.data(), n(), MPI_INT, root, group_.comm);
    check("Bcast", data, values_of<int>(root, n_));
  }

  void all_gather() {
    std::vector<int> out(gathered_.size());
    MPI_Allgather(own_.data(), n(), MPI_INT, out.data(), n(), MPI_INT, group_.comm);
    check("Allgather", out, gathered_);
    out.assign(gathered_.size(), 0);
    std::ranges::copy(own_, out.begin() + block_start(n_, group_.rank));
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out.data(), n(), MPI_INT, group_.comm);
    check("Allgather in place", out, gathered_);
  }

  void gather(int root) {
    std::vector<int> out(is(root) ? gathered_.size() : 0);
    MPI_Gather(own_.data(), n(), MPI_INT, out.data(), n(), MPI_INT, root, group_.comm);
    if (is(root)) check("Gather", out, gathered_);
    if (is(root)) std::ranges::copy(own_, out.begin() + block_start(n_, root));
    MPI_Gather(is(root) ? MPI_IN_PLACE : own_.data(), n(), MPI_INT, out.data(), n(), MPI_INT, root,
               group_.comm);
    if (is(root)) check("Gather in place", out, gathered_);
  }

  void scatter(int root) {
    const std::vector<int> all = values_of<int>(root, n_ * group_.size);
    std::vector<int> given = is(root) ? all : std::vector<int>();
    std::vector<int> out(own_.size());
    MPI_Scatter(given.data(), n(), MPI_INT, out.data(), n(), MPI_INT, root, group_.comm);
    const auto wanted = values_of<int>(root, n_, block_start(n_, group_.rank));
    check("Scatter", out, wanted);
    out.assign(own_.size(), 0);
    MPI_Scatter(given.data(), n(), MPI_INT, is(root) ? MPI_IN_PLACE : out.data(), n(), MPI_INT,
                root, group_.comm);
    if (is(root)) {
      check("Scatter in place", given, all);
    } else {
      check("Scatter to a root in place", out, wanted);
    }
  }

  void all_to_all() {
    const std::vector<int> in = values_of<int>(group_.rank, n_ * group_.size);
    std::vector<int> wanted;
    for (int r = 0; r < group_.size; ++r) {
      append(wanted, values_of<int>(r, n_, block_start(n_, group_.rank)));
    }
    std::vector<int> out(in.size());
    MPI_Alltoall(in.data(), n(), MPI_INT, out.data(), n(), MPI_INT, group_.comm);
    check("Alltoall", out, wanted);
    out = in;
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out.data(), n(), MPI_INT, group_.comm);
    check("Alltoall in place", out, wanted);
  }

  const Group& group_;
  int64_t n_;
  std::vector<int> own_;
  std::vector<int> gathered_;
};

// The block of rank r has n + r elements; the last of several ranks has none. Blocks lie in reverse
// order, with an unused element after each.
class UnevenMovements {
 public:
  UnevenMovements(const Group& group, int n) : group_(group) {
    int place = 0;
    for (int r = group.size - 1; r >= 0; --r) {
      const bool is_empty = group.size > 1 && r == group.size - 1;
      counts_.insert(counts_.begin(), is_empty ? 0 : n + r);
      places_.insert(places_.begin(), place);
      place += counts_.front() + 1;
    }
    room_ = static_cast<size_t>(place);
    own_ = values_of<int>(group.rank, count_of(group.rank));
    gathered_.assign(room_, -1);
    for (int r = 0; r < group.size; ++r) put(gathered_, r, values_of<int>(r, count_of(r)));
  }

  void run() {
    std::vector<int> out(room_, -1);
    MPI_Allgatherv(own_.data(), own(), MPI_INT, out.data(), counts_.data(), places_.data(), MPI_INT,
                   group_.comm);
    expect("Allgatherv", group_, out, gathered_);
    out.assign(room_, -1);
    put(out, group_.rank, own_);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out.data(), counts_.data(), places_.data(),
                   MPI_INT, group_.comm);
    expect("Allgatherv in place", group_, out, gathered_);
    for (int root = 0; root < group_.size; ++root) roots(root);
    all_to_all();
  }

 private:
  int count_of(int r) const { return counts_[static_cast<size_t>(r)]; }
  int place_of(int r) const { return places_[static_cast<size_t>(r)]; }
  int own() const { return count_of(group_.rank); }
  void put(std::vector<int>& to, int r, const std::vector<int>& values) const {
    std::ranges::copy(values, to.begin() + place_of(r));
  }

  void roots(int root) {
    const bool is_root = group_.rank == root;
    std::vector<int> out(room_, -1);
    MPI_Gatherv(own_.data(), own(), MPI_INT, out.data(), counts_.data(), places_.data(), MPI_INT,
                root, group_.comm);
    if (is_root) expect("Gatherv", group_, out, gathered_);
    out.assign(room_, -1);
    put(out, group_.rank, own_);
    MPI_Gatherv(is_root ? MPI_IN_PLACE : own_.data(), own(), MPI_INT, out.data(), counts_.data(),
                places_.data(), MPI_INT, root, group_.comm);
    if (is_root) expect("Gatherv in place", group_, out, gathered_);

    std::vector<int> given = gathered_;
    std::vector<int> got(own_.size());
    MPI_Scatterv(given.data(), counts_.data(), places_.data(), MPI_INT, got.data(), own(), MPI_INT,
                 root, group_.comm);
    expect("Scatterv", group_, got, own_);
    got.assign(own_.size(), 0);
    MPI_Scatterv(given.data(), counts_.data(), places_.data(), MPI_INT,
                 is_root ? MPI_IN_PLACE : got.data(), own(), MPI_INT, root, group_.comm);
    if (!is_root) expect("Scatterv to a root in place", group_, got, own_);
    expect("Scatterv's input", group_, given, gathered_);
  }

  // Rank s sends rank r count_of(s) + r values, so the last of several ranks receives the most and
  // sends the least.
  void all_to_all() {
    const auto amount = [&](int from, int to) { return count_of(from) + to; };
    std::vector<int> in_counts;
    std::vector<int> in_places;
    std::vector<int> out_counts;
    std::vector<int> out_places;
    std::vector<int> in;
    std::vector<int> wanted;
    const auto append = [](std::vector<int>& to, const std::vector<int>& more) {
      to.insert(to.end(), more.begin(), more.end());
    };
    for (int r = 0; r < group_.size; ++r) {
      in_counts.push_back(amount(group_.rank, r));
      in_places.push_back(static_cast<int>(in.size()));
      append(in, values_of<int>(group_.rank, in_counts.back()));
      out_counts.push_back(amount(r, group_.rank));
      out_places.push_back(static_cast<int>(wanted.size()));
      append(wanted, values_of<int>(r, out_counts.back()));
    }
    std::vector<int> out(wanted.size());
    MPI_Alltoallv(in.data(), in_counts.data(), in_places.data(), MPI_INT, out.data(),
                  out_counts.data(), out_places.data(), MPI_INT, group_.comm);
    expect("Alltoallv", group_, out, wanted);
    // In place, a rank sends as much to another rank as it receives from that rank.
    std::vector<int> counts(static_cast<size_t>(group_.size));
    std::vector<int> places(counts.size());
    out.clear();
    wanted.clear();
    for (int r = 0; r < group_.size; ++r) {
      const auto i = static_cast<size_t>(r);
      counts[i] = 3 + r + group_.rank;
      places[i] = static_cast<int>(out.size());
      append(out, values_of<int>(group_.rank, counts[i], r));
      append(wanted, values_of<int>(r, counts[i], group_.rank));
    }
    MPI_Alltoallv(MPI_IN_PLACE, nullptr, nullptr, MPI_DATATYPE_NULL, out.data(), counts.data(),
                  places.data(), MPI_INT, group_.comm);
    expect("Alltoallv in place", group_, out, wanted);
  }

  const Group& group_;
  std::vector<int> counts_;
  std::vector<int> places_;
  size_t room_ = 0;
  std::vector<int> own_;
  std::vector<int> gathered_;
};

// The root uses every second element of its memory, and the others use contiguous memory. A rank
// must not decide by its own type how a call is made.
void types_with_gaps(const Group& group) {
  constexpr int kCount = 5000;
  MPI_Datatype spread = MPI_DATATYPE_NULL;
  MPI_Datatype wide = MPI_DATATYPE_NULL;
  MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spread);
  MPI_Type_commit(&spread);
  MPI_Type_contiguous(kCount, MPI_INT, &wide);
  MPI_Type_commit(&wide);
  const bool is_root = group.rank == 0;
  const auto spread_out = [](const std::vector<int>& values) {
    std::vector<int> result(values.size() * 2, -1);
    for (size_t i = 0; i < values.size(); ++i) result[2 * i] = values[i];
    return result;
  };

  std::vector<int> data =
      is_root ? spread_out(values_of<int>(0, kCount)) : std::vector<int>(kCount);
  MPI_Bcast(data.data(), is_root ? kCount : 1, is_root ? spread : wide, 0, group.comm);
  if (!is_root) expect("Bcast from gaps", group, data, values_of<int>(0, kCount));

  std::vector<int> own = values_of<int>(group.rank, kCount);
  std::vector<int> out(static_cast<size_t>(is_root ? 2 * kCount * group.size : 0), -1);
  MPI_Gather(own.data(), 1, wide, out.data(), kCount, spread, 0, group.comm);
  std::vector<int> all;
  for (int r = 0; r < group.size; ++r) {
    const std::vector<int> part = spread_out(values_of<int>(r, kCount));
    all.insert(all.end(), part.begin(), part.end());
  }
  if (is_root) expect("Gather to gaps", group, out, all);
  MPI_Scatter(all.data(), kCount, spread, own.data(), 1, wide, 0, group.comm);
  expect("Scatter from gaps", group, own, values_of<int>(group.rank, kCount));

  std::vector<int> apart = spread_out(own);
  std::vector<int> every(static_cast<size_t>(2 * kCount * group.size), -1);
  MPI_Allgather(apart.data(), kCount, spread, every.data(), kCount, spread, group.comm);
  expect("Allgather with gaps", group, every, all);
  MPI_Type_free(&spread);
  MPI_Type_free(&wide);
}

// Before a collective, rank 0 sends a long message that rank 1 receives before it calls the
// collective. While rank 0 waits in the collective, it must progress the message.
void messages_under_way(const Group& group) {
  if (group.size < 2) return;
  std::vector<int> data(1 << 20, group.rank);
  MPI_Request request = MPI_REQUEST_NULL;
  if (group.rank == 0) {
    MPI_Isend(data.data(), 1 << 20, MPI_INT, 1, 7, group.comm, &request);
  } else if (group.rank == 1) {
    MPI_Recv(data.data(), 1 << 20, MPI_INT, 0, 7, group.comm, MPI_STATUS_IGNORE);
    expect("Recv", group, data, std::vector<int>(1 << 20, 0));
  }
  int one = 1;
  int sum = 0;
  MPI_Barrier(group.comm);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, group.comm);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect<int>("Allreduce behind a message", group, {sum}, {group.size});
}

void everything(const Group& group) {
  for (const int64_t count : {0, 1, 7, 1000, 30011}) Movements(group, count).run();
  for (const int count : {1, 500, 20011}) UnevenMovements(group, count).run();
  types_with_gaps(group);
  messages_under_way(group);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  using tutti::test::Group;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  const Group world("world", MPI_COMM_WORLD);
  tutti::test::everything(world);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  tutti::test::everything(Group("a duplicate", comm));
  MPI_Comm_free(&comm);
  MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, 0, &comm);
  tutti::test::everything(Group("every second rank", comm));
  MPI_Comm_free(&comm);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world.rank, &comm);
  tutti::test::everything(Group("the world in reverse", comm));
  // Not freed, so that the library has to clean up.
  return tutti::test::finish();
}
