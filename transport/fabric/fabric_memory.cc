#include "transport/fabric/fabric_memory.h"

#include <algorithm>
#include <utility>

#include "base/copy_bytes.h"

namespace tutti {

using fabric::Provider;
using fabric::RendezvousState;

namespace {

constexpr size_t kMostInFlight = 16;  // maximum number of puts in flight per RemoteMemory
constexpr size_t kGetsInFlight = 2;  // maximum pieces of a get: one arrives while another is copied
constexpr size_t kPiece = 256 << 10;  // maximum bytes of an access
static_assert(kPiece <= fabric::kMessageBytes);

class Exposed final : public ExposedMemory {
 public:
  Exposed(Provider& provider, Provider::Exposed exposed)
      : provider_(provider), exposed_(std::move(exposed)) {}
  ~Exposed() override {
    if (kept_ || provider_.forked()) return;
    const auto lock = provider_.lock();
    provider_.conceal(exposed_.id);
  }
  const std::string& key() const override { return exposed_.key; }
  void keep(std::shared_ptr<void> owner) override {
    const auto lock = provider_.lock();
    provider_.keep(std::move(owner));
    kept_ = true;
  }

 private:
  Provider& provider_;
  const Provider::Exposed exposed_;
  bool kept_ = false;
};

// Accesses to one rank's memory.
class Reached final : public RemoteMemory {
 public:
  Reached(Provider& provider, int rank, std::unique_ptr<fabric::Remote> remote)
      : provider_(provider), rank_(rank), remote_(std::move(remote)) {}
  ~Reached() override {
    if (provider_.forked()) {  // everything belongs to the parent
      static_cast<void>(std::make_unique<std::shared_ptr<fabric::Remote>>(remote_).release());
      return;
    }
    const auto lock = provider_.lock();
    for (Provider::Accessing* const put : puts_) provider_.end_access(put);
    remote_.reset();
  }

  size_t put(uint64_t offset, std::span<const std::byte> from) override;
  bool is_flushed() override;
  std::unique_ptr<Get> get(uint64_t offset, std::span<std::byte> into) override;
  std::string failure() override;

 private:
  class Reading;
  void take_back_ended();

  Provider& provider_;
  const int rank_;
  std::shared_ptr<fabric::Remote> remote_;
  // Guarded by the provider's lock.
  std::deque<Provider::Accessing*> puts_;  // in flight
  bool has_failed_ = false;
};

// The caller holds the lock.
void Reached::take_back_ended() {
  std::erase_if(puts_, [this](Provider::Accessing* put) {
    const RendezvousState coming = put->coming.load(std::memory_order_acquire);
    if (coming == RendezvousState::in_flight) return false;
    has_failed_ |= coming == RendezvousState::lost;
    provider_.end_access(put);
    return true;
  });
}

size_t Reached::put(uint64_t offset, std::span<const std::byte> from) {
  const size_t bytes = std::min(from.size(), kPiece);
  // Accesses in flight are unordered, so overlapping ones must not be in flight at the same time.
  const auto overlaps = [&](const Provider::Accessing* put) {
    return put->offset < offset + bytes && offset < put->offset + put->bytes;
  };
  const auto is_full = [&] {
    return puts_.size() >= kMostInFlight || std::ranges::any_of(puts_, overlaps);
  };
  const auto lock = provider_.lock();
  if (is_full()) take_back_ended();
  if (has_failed_ || is_full()) return 0;
  Provider::Accessing* const put = provider_.take_access();
  copy_bytes(put->memory, from.data(), bytes);
  puts_.push_back(put);
  put->remote = remote_;
  put->rank = rank_;
  put->offset = offset;
  put->bytes = bytes;
  put->writes = true;
  provider_.begin_access(*put);
  return bytes;
}

bool Reached::is_flushed() {
  const auto lock = provider_.lock();
  take_back_ended();
  return puts_.empty() && !has_failed_;
}

std::string Reached::failure() {
  const auto lock = provider_.lock();
  if (provider_.gone(rank_)) return "that rank has left the job";
  if (!has_failed_ && !provider_.broken(rank_)) return "";
  const std::string why = provider_.why(rank_);
  return why.empty() ? "the network card has refused an access" : why;
}

class Reached::Reading final : public Get {
 public:
  Reading(Reached& memory, uint64_t offset, std::span<std::byte> into)
      : memory_(memory), offset_(offset), into_(into) {}
  ~Reading() override {
    if (pieces_.empty()) return;
    const auto lock = memory_.provider_.lock();
    for (Provider::Accessing* const piece : pieces_) memory_.provider_.end_access(piece);
  }

  bool advance() override {
    begin_pieces();
    while (!pieces_.empty()) {
      Provider::Accessing* const oldest = pieces_.front();
      const RendezvousState coming = oldest->coming.load(std::memory_order_acquire);
      if (coming == RendezvousState::in_flight) return false;
      if (coming == RendezvousState::here) {
        copy_bytes(into_.data() + arrived_, oldest->memory, oldest->bytes);
        arrived_ += oldest->bytes;
      }
      pieces_.pop_front();
      const auto lock = memory_.provider_.lock();
      memory_.has_failed_ |= coming == RendezvousState::lost;
      memory_.provider_.end_access(oldest);
      if (memory_.has_failed_) return false;
      if (arrived_ == into_.size()) return true;
      begin_pieces_locked();
    }
    return arrived_ == into_.size();
  }

 private:
  void begin_pieces() {
    if (begun_ == into_.size() || pieces_.size() == kGetsInFlight) return;
    const auto lock = memory_.provider_.lock();
    begin_pieces_locked();
  }
  void begin_pieces_locked() {
    while (begun_ < into_.size() && pieces_.size() < kGetsInFlight && !memory_.has_failed_) {
      Provider::Accessing* const piece = memory_.provider_.take_access();
      pieces_.push_back(piece);
      piece->remote = memory_.remote_;
      piece->rank = memory_.rank_;
      piece->offset = offset_ + begun_;
      piece->bytes = std::min(into_.size() - begun_, kPiece);
      piece->writes = false;
      begun_ += piece->bytes;
      memory_.provider_.begin_access(*piece);
    }
  }

  Reached& memory_;
  const uint64_t offset_;
  const std::span<std::byte> into_;
  size_t begun_ = 0;
  size_t arrived_ = 0;
  std::deque<Provider::Accessing*> pieces_;  // in flight
};

std::unique_ptr<RemoteMemory::Get> Reached::get(uint64_t offset, std::span<std::byte> into) {
  return std::make_unique<Reading>(*this, offset, into);
}

}  // namespace

std::unique_ptr<ExposedMemory> expose_memory(Provider& provider, std::span<std::byte> memory) {
  const auto lock = provider.lock();
  Provider::Exposed exposed = provider.expose(memory);
  if (exposed.key.empty()) return nullptr;
  if (exposed.key.size() <= ExposedMemory::kLongestKey) {
    return std::make_unique<Exposed>(provider, std::move(exposed));
  }
  provider.conceal(exposed.id);
  return nullptr;
}

std::unique_ptr<RemoteMemory> reach_memory(Provider& provider, int rank, std::string_view key) {
  const auto lock = provider.lock();
  std::unique_ptr<fabric::Remote> remote = provider.reach(rank, key);
  if (remote == nullptr) return nullptr;
  return std::make_unique<Reached>(provider, rank, std::move(remote));
}

}  // namespace tutti
