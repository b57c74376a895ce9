// Checks properties of non-blocking calls besides their results: a rank in another call still does
// its part, types and communicators may be freed early, and the request reports errors.
#include <mpi.h>

#include <cstring>

#include "tests/bindings/mpi/checks.h"

namespace tutti::test {
namespace {

// Rank 1 sends only after its collective has completed. The collective needs rank 0, which is in a
// receive by then.
void ranks_elsewhere_do_their_part(const Group& group) {
  if (group.size < 2) return;
  constexpr int kCount = 100000;
  std::vector<int> in(kCount, 1);
  std::vector<int> out(kCount);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(in.data(), out.data(), kCount, MPI_INT, MPI_SUM, group.comm, &request);
  int word = 0;
  if (group.rank == 0) {
    MPI_Recv(&word, 1, MPI_INT, 1, 5, group.comm, MPI_STATUS_IGNORE);
    expect<int>("a word after the call", group, {word}, {42});
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    word = 42;
    if (group.rank == 1) MPI_Send(&word, 1, MPI_INT, 0, 5, group.comm);
  }
  expect("Iallreduce", group, out, std::vector<int>(kCount, group.size));
}

// As above, but rank 0 has an earlier call that ends while it is in the receive.
void later_calls_go_on(const Group& group) {
  if (group.size < 2) return;
  constexpr int kCount = 100000;
  std::vector<int> in(kCount, 1);
  std::vector<int> out(kCount);
  int earlier = 0;
  int word = 0;
  MPI_Request requests[2] = {};
  MPI_Iallreduce(in.data(), &earlier, 1, MPI_INT, MPI_SUM, group.comm, &requests[0]);
  if (group.rank > 0) MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  MPI_Iallreduce(in.data(), out.data(), kCount, MPI_INT, MPI_SUM, group.comm, &requests[1]);
  if (group.rank == 0) MPI_Recv(&word, 1, MPI_INT, 1, 5, group.comm, MPI_STATUS_IGNORE);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  if (group.rank == 1) MPI_Send(&word, 1, MPI_INT, 0, 5, group.comm);
  expect<int>("an Iallreduce that ended during the receive", group, {earlier}, {group.size});
  expect("an Iallreduce after it", group, out, std::vector<int>(kCount, group.size));
}

// Makes the ranks arrive at the communicator's first call one after another, each triggered by a
// message.
void first_calls_do_not_wait(const Group& group) {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(group.comm, &copy);
  MPI_Request request = MPI_REQUEST_NULL;
  int token = 0;
  if (group.rank > 0) {
    MPI_Recv(&token, 1, MPI_INT, group.rank - 1, 6, group.comm, MPI_STATUS_IGNORE);
  }
  MPI_Ibarrier(copy, &request);
  if (group.rank + 1 < group.size) {
    MPI_Send(&token, 1, MPI_INT, group.rank + 1, 6, group.comm);
  }
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_free(&copy);
}

void things_may_be_freed(const Group& group) {
  constexpr int kCount = 5000;
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(group.comm, &copy);
  MPI_Barrier(copy);
  MPI_Datatype spaced = MPI_DATATYPE_NULL;
  MPI_Type_vector(kCount, 1, 2, MPI_INT, &spaced);
  MPI_Type_commit(&spaced);
  std::vector<int> data(size_t{2} * kCount, group.rank == 0 ? 3 : -1);
  std::vector<int> in(kCount, 2);
  std::vector<int> out(kCount);
  MPI_Request requests[2] = {};
  MPI_Ibcast(data.data(), 1, spaced, 0, copy, &requests[0]);
  MPI_Iallreduce(in.data(), out.data(), kCount, MPI_INT, MPI_SUM, copy, &requests[1]);
  MPI_Type_free(&spaced);
  MPI_Comm_free(&copy);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  std::vector<int> wanted(size_t{2} * kCount, group.rank == 0 ? 3 : -1);
  for (size_t i = 0; i < wanted.size(); i += 2) wanted[i] = 3;
  expect("Ibcast with a type that is free", group, data, wanted);
  expect("Iallreduce on a communicator that is free", group, out,
         std::vector<int>(kCount, 2 * group.size));
}

// Tests a type of two arrays given by absolute addresses (MPI_BOTTOM).
void absolute_types(const Group& group) {
  constexpr int kCount = 3000;
  std::vector<int> numbers(kCount, group.rank == 0 ? 7 : -1);
  std::vector<double> reals(kCount, group.rank == 0 ? 0.5 : -1);
  const int counts[] = {kCount, kCount};
  MPI_Aint places[2] = {};
  MPI_Get_address(numbers.data(), &places[0]);
  MPI_Get_address(reals.data(), &places[1]);
  const MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE};
  MPI_Datatype both = MPI_DATATYPE_NULL;
  MPI_Type_create_struct(2, counts, places, types, &both);
  MPI_Type_commit(&both);
  MPI_Bcast(MPI_BOTTOM, 1, both, 0, group.comm);
  expect("numbers of an absolute type", group, numbers, std::vector<int>(kCount, 7));
  expect("reals of an absolute type", group, reals, std::vector<double>(kCount, 0.5));
  if (group.rank == 0) numbers[1] = 8;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(MPI_BOTTOM, 1, both, 0, group.comm, &request);
  MPI_Type_free(&both);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect<int>("an Ibcast of an absolute type", group, {numbers[1]}, {8});
}

// Completes a call by polling look(request, done).
template <typename Look>
void ends_by(const char* name, const Group& group, const Look& look) {
  constexpr int kCount = 20000;
  std::vector<int> in(kCount, 1);
  std::vector<int> out(kCount);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(in.data(), out.data(), kCount, MPI_INT, MPI_SUM, group.comm, &request);
  for (int done = 0; done == 0;) look(request, done);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(name, group, out, std::vector<int>(kCount, group.size));
}

// Tests every function of the standard that completes a request or tests for completion.
void every_completing_function(const Group& group) {
  MPI_Status status = {};
  int index = 0;
  ends_by("Test", group, [&](MPI_Request& r, int& done) { MPI_Test(&r, &done, &status); });
  ends_by("Testall", group,
          [&](MPI_Request& r, int& done) { MPI_Testall(1, &r, &done, MPI_STATUSES_IGNORE); });
  ends_by("Testany", group,
          [&](MPI_Request& r, int& done) { MPI_Testany(1, &r, &index, &done, &status); });
  ends_by("Testsome", group, [&](MPI_Request& r, int& done) {
    MPI_Testsome(1, &r, &done, &index, MPI_STATUSES_IGNORE);
  });
  ends_by("Waitall", group,
          [&](MPI_Request& r, int& done) { done = 1 + MPI_Waitall(1, &r, MPI_STATUSES_IGNORE); });
  ends_by("Waitany", group,
          [&](MPI_Request& r, int& done) { done = 1 + MPI_Waitany(1, &r, &index, &status); });
  ends_by("Waitsome", group, [&](MPI_Request& r, int& done) {
    MPI_Waitsome(1, &r, &done, &index, MPI_STATUSES_IGNORE);
  });
  ends_by("Request_get_status", group,
          [&](MPI_Request& r, int& done) { MPI_Request_get_status(r, &done, &status); });
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
  ends_by("Request_get_status_all", group, [&](MPI_Request& r, int& done) {
    MPI_Request_get_status_all(1, &r, &done, MPI_STATUSES_IGNORE);
  });
  ends_by("Request_get_status_any", group, [&](MPI_Request& r, int& done) {
    MPI_Request_get_status_any(1, &r, &index, &done, &status);
  });
  ends_by("Request_get_status_some", group, [&](MPI_Request& r, int& done) {
    MPI_Request_get_status_some(1, &r, &done, &index, MPI_STATUSES_IGNORE);
  });
#endif
}

// Tests many calls in flight on two communicators, completed from the last to the first.
void many_at_a_time(const Group& group) {
  constexpr int kCalls = 300;
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(group.comm, &copy);
  MPI_Barrier(copy);
  std::vector<int> sums(kCalls);
  std::vector<int> ins(kCalls);
  std::vector<int> wanted(kCalls);
  std::vector<MPI_Request> requests(kCalls);
  for (size_t i = 0; i < kCalls; ++i) {
    ins[i] = static_cast<int>(i);
    wanted[i] = static_cast<int>(i) * group.size;
    MPI_Iallreduce(&ins[i], &sums[i], 1, MPI_INT, MPI_SUM, i % 2 == 0 ? copy : group.comm,
                   &requests[i]);
  }
  for (size_t i = kCalls; i-- > 0;) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
  expect("many Iallreduce", group, sums, wanted);
  MPI_Comm_free(&copy);
}

void errors_come_with_the_request(const Group& group) {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(group.comm, &copy);
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Barrier(copy);
  std::vector<int> in(200, 1);
  std::vector<int> out(200);
  MPI_Request request = MPI_REQUEST_NULL;
  const int count = group.rank == 0 ? 100 : 200;
  int status = MPI_Iallreduce(in.data(), out.data(), count, MPI_INT, MPI_SUM, copy, &request);
  if (status == MPI_SUCCESS) status = MPI_Wait(&request, MPI_STATUS_IGNORE);
  int kind = MPI_SUCCESS;
  MPI_Error_class(status, &kind);
  expect<int>("an Iallreduce that does not fit", group, {kind}, {MPI_ERR_TRUNCATE});
  MPI_Comm_free(&copy);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  using namespace tutti::test;  // NOLINT(google-build-using-namespace)
  MPI_Init(&argc, &argv);
  const Group world("world", MPI_COMM_WORLD);
  const bool with_tutti = argc > 1 && std::strcmp(argv[1], "tutti") == 0;
  for (int round = 0; round < 5; ++round) {
    ranks_elsewhere_do_their_part(world);
    later_calls_go_on(world);
    first_calls_do_not_wait(world);
    // Without Tutti, Open MPI 4.1.4 sometimes crashes: its schedule uses the freed communicator.
    if (with_tutti) things_may_be_freed(world);
    many_at_a_time(world);
    absolute_types(world);
    every_completing_function(world);
  }
  if (with_tutti && world.size > 1) errors_come_with_the_request(world);
  return finish();
}
