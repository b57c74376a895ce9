// Makes erroneous calls under MPI_ERRORS_RETURN and with an error handler. Prints one line per
// call, with the error class that the call returned and the class that the handler received, for
// comparison with the plain library. A correct call follows each erroneous one. No count is
// negative, because negative counts crash MPICH 4.0 in some calls.
#include <mpi.h>

#include <cstdio>
#include <functional>
#include <vector>

#include "tests/bindings/mpi/checks.h"

namespace tutti::test {
namespace {

constexpr int kCount = 100;

struct Data {
  std::vector<double> in = std::vector<double>(kCount * 16, 1.0);
  std::vector<double> out = std::vector<double>(kCount * 16, 0.0);
  std::vector<int> counts = std::vector<int>(16, kCount);
  std::vector<int> places = std::vector<int>(16, 0);
  MPI_Datatype uncommitted = MPI_DATATYPE_NULL;

  Data() {
    for (int i = 0; i < 16; ++i) places[static_cast<size_t>(i)] = i * kCount;
    MPI_Type_vector(2, 1, 3, MPI_DOUBLE, &uncommitted);
  }
  ~Data() { MPI_Type_free(&uncommitted); }
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
};

int told = MPI_SUCCESS;  // error class that the handler received

void tell(MPI_Comm*, int* code, ...) { MPI_Error_class(*code, &told); }  // NOLINT(cert-dcl50-cpp)

// Prints the returned class and the class given to the handler, then makes a correct call.
void show(const Group& group, const char* what, const std::function<int(MPI_Comm)>& call) {
  for (const bool with_handler : {false, true}) {
    MPI_Errhandler handler = MPI_ERRORS_RETURN;
    if (with_handler) MPI_Comm_create_errhandler(tell, &handler);
    MPI_Comm_set_errhandler(group.comm, handler);
    told = MPI_SUCCESS;
    int kind = MPI_SUCCESS;
    MPI_Error_class(call(group.comm), &kind);
    MPI_Comm_set_errhandler(group.comm, MPI_ERRORS_RETURN);
    if (with_handler) MPI_Errhandler_free(&handler);
    if (group.rank == 0) std::printf("%s: class %d, handler %d\n", what, kind, told);
    int one = 1;
    int sum = 0;
    const int status = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, group.comm);
    expect<int>(std::string("a right call after: ") + what, group, {status, sum},
                {MPI_SUCCESS, group.size});
  }
}

using Comm = MPI_Comm;

void wrong_reductions(const Group& group, Data& d) {
  double* const in = d.in.data();
  double* const out = d.out.data();
  show(group, "Allreduce, null type",
       [&](Comm c) { return MPI_Allreduce(in, out, 1, MPI_DATATYPE_NULL, MPI_SUM, c); });
  show(group, "Allreduce, null operator",
       [&](Comm c) { return MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_OP_NULL, c); });
  show(group, "Allreduce, operator not for the type",
       [&](Comm c) { return MPI_Allreduce(in, out, 1, MPI_DOUBLE, MPI_BAND, c); });
  show(group, "Allreduce, result in place",
       [&](Comm c) { return MPI_Allreduce(in, MPI_IN_PLACE, 1, MPI_DOUBLE, MPI_SUM, c); });
  show(group, "Reduce, root too large",
       [&](Comm c) { return MPI_Reduce(in, out, 1, MPI_DOUBLE, MPI_SUM, 99, c); });
  show(group, "Reduce, negative root",
       [&](Comm c) { return MPI_Reduce(in, out, 1, MPI_DOUBLE, MPI_SUM, -77, c); });
  show(group, "Exscan, null operator",
       [&](Comm c) { return MPI_Exscan(in, out, 1, MPI_DOUBLE, MPI_OP_NULL, c); });
}

// MPI forbids aliased buffers; the library's reaction is implementation-defined.
void aliased(const Group& group, Data& d) {
  double* const in = d.in.data();
  const auto share = [&] { d.in.assign(d.in.size(), 1); };
  show(group, "Allreduce, aliased", [&](Comm c) {
    share();
    return MPI_Allreduce(in, in, kCount, MPI_DOUBLE, MPI_SUM, c);
  });
  show(group, "Scan, aliased", [&](Comm c) {
    share();
    return MPI_Scan(in, in, kCount, MPI_DOUBLE, MPI_SUM, c);
  });
  show(group, "Allreduce of nothing, aliased",
       [&](Comm c) { return MPI_Allreduce(in, in, 0, MPI_DOUBLE, MPI_SUM, c); });
}

void wrong_movements(const Group& group, Data& d) {
  double* const in = d.in.data();
  double* const out = d.out.data();
  show(group, "Bcast, root too large",
       [&](Comm c) { return MPI_Bcast(in, kCount, MPI_DOUBLE, 99, c); });
  show(group, "Bcast, uncommitted type",
       [&](Comm c) { return MPI_Bcast(in, 1, d.uncommitted, 0, c); });
  show(group, "Allgather, null type",
       [&](Comm c) { return MPI_Allgather(in, 1, MPI_DOUBLE, out, 1, MPI_DATATYPE_NULL, c); });
  show(group, "Gather, root too large",
       [&](Comm c) { return MPI_Gather(in, 1, MPI_DOUBLE, out, 1, MPI_DOUBLE, 99, c); });
  show(group, "Gatherv, root too large", [&](Comm c) {
    return MPI_Gatherv(in, 1, MPI_DOUBLE, out, d.counts.data(), d.places.data(), MPI_DOUBLE, 99, c);
  });
  show(group, "Scatter, root too large",
       [&](Comm c) { return MPI_Scatter(in, 1, MPI_DOUBLE, out, 1, MPI_DOUBLE, 99, c); });
  show(group, "Scatterv, root too large", [&](Comm c) {
    return MPI_Scatterv(in, d.counts.data(), d.places.data(), MPI_DOUBLE, out, 1, MPI_DOUBLE, 99,
                        c);
  });
}

// Makes the same errors in non-blocking calls, where the call or MPI_Wait reports them.
void wrong_starts(const Group& group, Data& d) {
  double* const in = d.in.data();
  double* const out = d.out.data();
  const auto done = [](int status, MPI_Request& request) {
    return status == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : status;
  };
  show(group, "Ibcast, root too large", [&](Comm c) {
    MPI_Request request = MPI_REQUEST_NULL;
    return done(MPI_Ibcast(in, 1, MPI_DOUBLE, 99, c, &request), request);
  });
  show(group, "Iallgather, null type", [&](Comm c) {
    MPI_Request request = MPI_REQUEST_NULL;
    return done(MPI_Iallgather(in, 1, MPI_DATATYPE_NULL, out, 1, MPI_DOUBLE, c, &request), request);
  });
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  using namespace tutti::test;  // NOLINT(google-build-using-namespace)
  MPI_Init(&argc, &argv);
  // Some errors go to the handler of the world or of MPI_COMM_SELF.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  {
    const Group group("a copy of the world", copy);
    Data data;
    MPI_Barrier(copy);
    wrong_reductions(group, data);
    aliased(group, data);
    wrong_movements(group, data);
    wrong_starts(group, data);
  }
  MPI_Comm_free(&copy);
  return finish();
}
