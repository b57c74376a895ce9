// Compares a 3x3 convolution of images that are divided over all ranks, one above the other, with a
// convolution of whole images on one rank. Times both in turn, and prints medians of the slowest
// rank:
//
//   tutti run -n 2 -- spatial [--batch 4] [--channels 16] [--turns 15] [SIZE...]
//
// For each size: milliseconds of forward, and of backward (the input's gradient and the weights'),
// on one rank and on all; the gain; the time of a halo exchange without computation, and the
// fraction of that time that overlaps with the computation of the tile's interior.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/median.h"
#include "collectives/communicator.h"
#include "training/core/random.h"
#include "training/core/thread_pool.h"
#include "training/modules/convolution.h"
#include "training/parallel/halo_exchange.h"
#include "training/parallel/mesh.h"

namespace tutti::training {
namespace {

struct Options {
  int64_t batch = 4;
  int64_t channels = 16;
  int turns = 15;
  std::vector<int64_t> sizes;
};

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

const HaloExchange kHalos(Axis::spatial);

// A layer of whole or divided images, with its data.
class Layer {
 public:
  Layer(const Options& options, int64_t size, const Spatial& spatial, Mesh* mesh)
      : image_{size, size, options.channels},
        convolution_(table_, "c", image_,
                     {.outputs = options.channels, .padding = 1, .spatial = spatial}),
        batch_{.samples = options.batch},
        pass_{{.batch = &batch_, .mesh = mesh}, arena_},
        windows_(spatial.grid, image_, {.height = 3, .width = 3, .padding = 1}, image_),
        spatial_(spatial),
        x_(static_cast<size_t>(options.batch * spatial.grid.own(image_).size())),
        dy_(x_.size()),
        weight_(static_cast<size_t>(9 * options.channels * options.channels)),
        gradient_(weight_.size()) {
    for (std::vector<float>* values : {&x_, &dy_, &weight_}) {
      for (size_t i = 0; i < values->size(); ++i) {
        (*values)[i] = scale_symmetric(random_bits(1, 0, i), 1.0f);
      }
    }
    table_.set_value(0, matrix(weight_, options.channels));
    table_.set_gradient(0, matrix(gradient_, options.channels));
  }

  double forward() {
    arena_.release(0);
    return seconds_of([&] { convolution_.forward(pass_, matrix(x_, batch_.samples), saved_); });
  }
  double backward() {
    return seconds_of([&] { convolution_.backward(pass_, matrix(dy_, batch_.samples), saved_); });
  }
  // Returns the time of a halo exchange without computation.
  double halo() {
    return seconds_of([&] {
      const auto exchange = start_halo(pass_, spatial_, windows_, matrix(x_, batch_.samples));
      if (exchange != nullptr) exchange->wait();
    });
  }

 private:
  static Tensor matrix(std::vector<float>& values, int64_t rows) {
    return tensor_at(values.data(), DType::f32, rows, std::ssize(values) / rows);
  }

  ImageShape image_;
  ParameterTable table_;
  Convolution convolution_;
  Arena arena_;
  MicroBatch batch_;
  Pass pass_;
  TiledWindows windows_;
  Spatial spatial_;
  std::vector<float> x_, dy_, weight_, gradient_;
  Convolution::Saved saved_;
};

struct Times {
  std::vector<double> forward, backward, halo, waited;
};

// Returns the slowest rank's time on every rank.
double slowest(Communicator& world, double seconds) {
  world.all_reduce(std::span(&seconds, 1), ReduceOp::max);
  return seconds;
}

void measure(Mesh& mesh, const Options& options, int64_t size) {
  Communicator& world = mesh.world();
  Layer whole(options, size, {}, nullptr);
  Layer tile(options, size, {ImageGrid::of(mesh.place()), &kHalos}, &mesh);
  const auto waited = [&] {
    return std::chrono::duration<double>(mesh.unit_traffic().waited).count();
  };
  Times alone, cut;
  for (int turn = -2; turn < options.turns; ++turn) {  // the first two turns are not counted
    Times now;
    world.barrier();
    if (world.rank() == 0) {
      now.forward.push_back(whole.forward());
      now.backward.push_back(whole.backward());
    }
    world.barrier();
    const double before = waited();
    const double forward = slowest(world, tile.forward());
    const double waiting = slowest(world, waited() - before);
    world.barrier();
    const double backward = slowest(world, tile.backward());
    world.barrier();
    const double halo = slowest(world, tile.halo());
    if (turn < 0) continue;
    cut.forward.push_back(forward);
    cut.backward.push_back(backward);
    cut.halo.push_back(halo);
    cut.waited.push_back(waiting);
    alone.forward.insert(alone.forward.end(), now.forward.begin(), now.forward.end());
    alone.backward.insert(alone.backward.end(), now.backward.begin(), now.backward.end());
  }
  if (world.rank() != 0) return;
  const double halo = median(cut.halo), waiting = median(cut.waited);
  std::printf("%5ld  %9.2f %9.2f %6.2f  %9.2f %9.2f %6.2f  %8.3f %7.0f%%\n", size,
              1e3 * median(alone.forward), 1e3 * median(cut.forward),
              median(alone.forward) / median(cut.forward), 1e3 * median(alone.backward),
              1e3 * median(cut.backward), median(alone.backward) / median(cut.backward), 1e3 * halo,
              100 * std::max(0.0, 1 - waiting / halo));
}

void run(const Options& options) {
  ThreadPool pool(1);
  const UseThreads use(pool);
  Communicator world = Communicator::init();
  const int ranks = world.size();
  Mesh mesh(world, {.data = 1, .spatial = {ranks, 1}});
  mesh.along(Axis::spatial);
  if (world.rank() == 0) {
    std::printf(
        "       forward, ms                 backward, ms                halo\n"
        " size    1 rank   %d ranks   gain     1 rank   %d ranks   gain        ms   hidden\n",
        ranks, ranks);
  }
  for (const int64_t size : options.sizes) measure(mesh, options, size);
}

}  // namespace
}  // namespace tutti::training

int main(int count, char** words) {
  tutti::training::Options options;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    const auto number = [&](int at) { return std::max(1, at < count ? std::atoi(words[at]) : 1); };
    if (word == "--batch") {
      options.batch = number(++i);
    } else if (word == "--channels") {
      options.channels = number(++i);
    } else if (word == "--turns") {
      options.turns = number(++i);
    } else {
      options.sizes.push_back(number(i));
    }
  }
  if (options.sizes.empty()) options.sizes = {128, 256, 512};
  tutti::training::run(options);
}
