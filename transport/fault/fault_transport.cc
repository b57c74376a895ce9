#include "transport/fault/fault_transport.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tutti {

namespace {

constexpr std::array<std::string_view, 6> kKinds = {"kill",  "stall", "truncate",
                                                    "delay", "swap",  "abort"};

template <typename Number>
bool read_number(const std::string& digits, Number& value) {
  const auto number = parse_number<Number>(digits);
  value = number.value_or(value);
  return number.has_value();
}

Fault parse_fault(std::string_view text) {
  const std::vector<std::string> parts = split(text, ':');
  const auto kind = static_cast<size_t>(std::ranges::find(kKinds, parts[0]) - kKinds.begin());
  Fault fault{.kind = static_cast<FaultKind>(kind)};
  const size_t wanted = fault.kind == FaultKind::delay ? 4 : 3;
  if (kind < kKinds.size() && parts.size() == wanted && read_number(parts[1], fault.rank) &&
      read_number(parts[2], fault.message) &&
      (wanted == 3 || read_number(parts[3], fault.milliseconds))) {
    return fault;
  }
  throw Error(ErrorCode::invalid_argument, cat("TUTTI_FAULT='", text, "' is not a fault"),
              {.remedy = "write kill, stall, truncate, swap or abort with a rank and a message "
                         "(kill:1:5), or delay with milliseconds as well (delay:1:5:100)"});
}

// Reports the fault, so that tests know that it was triggered.
void tell(const Fault& fault) {
  log(LogLevel::warning, cat("injecting the fault ", to_text(fault), " of TUTTI_FAULT"));
}

}  // namespace

std::vector<Fault> parse_faults(std::string_view text) {
  std::vector<Fault> faults;
  if (text.empty()) return faults;
  for (const std::string& part : split(text, ',')) faults.push_back(parse_fault(part));
  return faults;
}

std::string to_text(const Fault& fault) {
  const std::string_view kind = kKinds[static_cast<size_t>(fault.kind)];
  const std::string duration =
      fault.kind == FaultKind::delay ? cat(":", fault.milliseconds) : std::string();
  return cat(kind, ":", fault.rank, ":", fault.message, duration);
}

Faults::Faults(const std::vector<Fault>& faults, int rank) {
  std::ranges::copy_if(faults, std::back_inserter(faults_),
                       [&](const Fault& fault) { return fault.rank == rank; });
}

const Fault* Faults::at(uint64_t message) const {
  const auto found = std::ranges::find(faults_, message, &Fault::message);
  return found == faults_.end() ? nullptr : &*found;
}

void Faults::sent() {
  const Fault* const fault = at(++sent_);
  if (fault == nullptr || fault->kind != FaultKind::delay) return;
  tell(*fault);
  std::this_thread::sleep_for(std::chrono::milliseconds(fault->milliseconds));
}

void Faults::stall(const Fault& fault) {
  if (!stalled_.exchange(true)) tell(fault);
}

bool Faults::any_swap() const {
  return std::ranges::find(faults_, FaultKind::swap, &Fault::kind) != faults_.end();
}

// Swaps two words. TCP's checksum, the sum of all 16-bit words, does not change.
void Faults::swap_words(std::span<std::byte> payload) {
  const Fault* const fault = swap_;
  constexpr size_t kWord = 2;
  const std::span<std::byte> first = payload.first(std::min(kWord, payload.size()));
  for (size_t at = kWord; fault != nullptr && at + kWord <= payload.size(); at += kWord) {
    const std::span<std::byte> other = payload.subspan(at, kWord);
    if (std::ranges::equal(first, other)) continue;
    std::ranges::swap_ranges(first, other);
    swap_ = nullptr;
    return tell(*fault);
  }
}

// Injects the fault that is due at the next message, if any; `truncate` halves `header.bytes`.
// Returns false if the caller must not send the message (kill, stall).
bool FaultTransport::strike(MessageHeader& header) {
  const Fault* const fault = faults_.due();
  if (fault == nullptr) return true;
  switch (fault->kind) {
    case FaultKind::kill:
      tell(*fault);
      std::raise(SIGKILL);
      return false;
    case FaultKind::stall:
      faults_.stall(*fault);
      return false;
    case FaultKind::truncate:
      if (header.bytes > 0) tell(*fault);  // an empty message has no half
      header.bytes /= 2;
      return true;
    case FaultKind::swap:
      faults_.swap_next(*fault);
      return true;
    case FaultKind::abort:
      tell(*fault);
      abort_();
      return true;
    case FaultKind::delay:
      return true;
  }
  return true;
}

std::byte* FaultTransport::reserve(std::span<const int> peers, int lane, size_t bytes, int credit) {
  const Fault* const fault = faults_.due();
  // The stall begins here, so that the caller does not consider the message sent.
  if (fault != nullptr && fault->kind == FaultKind::stall) faults_.stall(*fault);
  return faults_.stalled() ? nullptr : inner_->reserve(peers, lane, bytes, credit);
}

const MessageHeader* FaultTransport::front(int peer, int lane) {
  return faults_.stalled() ? nullptr : inner_->front(peer, lane);
}

// Sends a message with a fault by reserve() and commit(), which inject the fault. Passes all other
// messages to the wrapped transport.
bool FaultTransport::write(int peer, int lane, const MessageHeader& header,
                           std::span<const std::byte> payload, int credit) {
  if (faults_.due() != nullptr) return write_by_copy(peer, lane, header, payload, credit);
  if (faults_.stalled() || !inner_->write(peer, lane, header, payload, credit)) return false;
  faults_.sent();
  return true;
}

int FaultTransport::lend(std::span<const int> peers, int lane, const MessageHeader& header,
                         std::span<const std::byte> payload) {
  MessageHeader cut = header;
  if (faults_.stalled() || !strike(cut)) return -1;
  const int loan = inner_->lend(peers, lane, cut, payload.first(cut.bytes));
  if (loan >= 0) faults_.sent();
  return loan;
}

void FaultTransport::commit(const MessageHeader& header) {
  MessageHeader cut = header;
  if (!strike(cut)) return;
  inner_->commit(cut);
  faults_.sent();
}

}  // namespace tutti
