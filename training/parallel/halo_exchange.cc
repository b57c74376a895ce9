#include "training/parallel/halo_exchange.h"

#include <chrono>
#include <utility>

#include "training/kernels/elementwise.h"
#include "training/parallel/mesh.h"

namespace tutti::training {
namespace {

using Clock = std::chrono::steady_clock;
using Messages = std::vector<HaloMessages::Message>;

size_t bytes_of(const HaloMessages::Message& message, DType type) {
  return static_cast<size_t>(message.rows * message.cols) * size_of(type);
}

double bytes_of_all(const Messages& messages, DType type) {
  double bytes = 0;
  for (const auto& message : messages) bytes += static_cast<double>(bytes_of(message, type));
  return bytes;
}

class MeshExchange : public HaloMessages::Exchange {
 public:
  MeshExchange(Pass& pass, Axis axis, DType type, Messages sent, Messages received)
      : mesh_(*pass.mesh),
        axis_(axis),
        backend_(pass.arena.backend()),
        bytes_(bytes_of_all(sent, type)),
        sent_(lend(std::move(sent), type)),
        received_(lend(std::move(received), type)) {}
  // After an error, messages may still be in flight, so their memory is not returned to the pool.
  ~MeshExchange() override {
    if (!in_flight_.empty()) return;
    give_back(sent_);
    give_back(received_);
  }
  MeshExchange(const MeshExchange&) = delete;
  MeshExchange& operator=(const MeshExchange&) = delete;

  Tensor sent(size_t index) override { return sent_[index].second; }
  ConstTensor received(size_t index) override { return received_[index].second; }

  void start() override {
    Communicator& ranks = mesh_.along(axis_);
    for (const auto& [rank, tensor] : received_) {
      in_flight_.push_back(ranks.recv_async(as_buffer(tensor), rank, {}));
    }
    for (const auto& [rank, tensor] : sent_) {
      in_flight_.push_back(ranks.send_async(as_buffer(as_const(tensor)), rank, {}));
    }
  }

  void wait() override {
    const Clock::time_point start = Clock::now();
    for (Work& work : in_flight_) work.wait();
    in_flight_.clear();
    mesh_.add_unit_traffic(axis_, "halo", bytes_, start);
  }

 private:
  using Lent = std::vector<std::pair<int, Tensor>>;  // peer, and memory of the message

  static ConstTensor as_const(const Tensor& tensor) { return tensor; }
  Lent lend(Messages messages, DType type) {
    BufferPool& pool = mesh_.messages(axis_, backend_);
    Lent lent;
    for (const auto& message : messages) {
      std::byte* const memory = pool.acquire(bytes_of(message, type));
      lent.emplace_back(message.rank,
                        tensor_at(memory, type, message.rows, message.cols, backend_));
    }
    return lent;
  }
  void give_back(const Lent& lent) {
    BufferPool& pool = mesh_.messages(axis_, backend_);
    for (const auto& [rank, tensor] : lent) pool.release(tensor.data, tensor.bytes());
  }

  Mesh& mesh_;
  Axis axis_;
  const Backend* backend_;
  double bytes_;  // bytes that this rank sends
  Lent sent_, received_;
  std::vector<Work> in_flight_;
};

// Exchange in a pass without a mesh, in which a model is measured on one rank. Received data are 0.
class NoExchange : public HaloMessages::Exchange {
 public:
  NoExchange(Pass& pass, Axis axis, DType type, const Messages& sent, const Messages& received)
      : pass_(pass), axis_(axis), bytes_(bytes_of_all(sent, type)) {
    for (const auto& message : sent) sent_.push_back(take(type, message));
    for (const auto& message : received) {
      received_.push_back(take(type, message));
      zero(received_.back());
    }
  }
  Tensor sent(size_t index) override { return sent_[index]; }
  void start() override { pass_.record_unsent({axis_, "halo", bytes_}); }
  void wait() override {}
  ConstTensor received(size_t index) override { return received_[index]; }

 private:
  Tensor take(DType type, const HaloMessages::Message& message) {
    const Backend* const backend = pass_.arena.backend();
    memory_.push_back(allocate(backend, bytes_of(message, type)));
    return tensor_at(memory_.back().get(), type, message.rows, message.cols, backend);
  }

  Pass& pass_;
  Axis axis_;
  double bytes_;
  std::vector<BackendMemory> memory_;
  std::vector<Tensor> sent_, received_;
};

}  // namespace

std::unique_ptr<HaloMessages::Exchange> HaloExchange::begin(Pass& pass, DType type,
                                                            std::vector<Message> sent,
                                                            std::vector<Message> received) const {
  if (pass.mesh == nullptr) return std::make_unique<NoExchange>(pass, axis_, type, sent, received);
  return std::make_unique<MeshExchange>(pass, axis_, type, std::move(sent), std::move(received));
}

}  // namespace tutti::training
