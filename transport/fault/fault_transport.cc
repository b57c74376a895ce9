#include "transport/fault/fault_transport.h"

#include <charconv>
#include <csignal>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace tutti {

std::optional<Fault> parse_fault(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const auto number = [](const std::string& digits, auto& value) {
    const char* const last = digits.data() + digits.size();
    const auto [end, status] = std::from_chars(digits.data(), last, value);
    return status == std::errc{} && end == last;
  };
  const std::vector<std::string> parts = split(text, ':');
  Fault fault;
  bool good = parts.size() == 3 && number(parts[1], fault.rank) && number(parts[2], fault.message);
  if (good && parts[0] == "kill") {
    fault.kind = FaultKind::kill;
  } else if (good && parts[0] == "stall") {
    fault.kind = FaultKind::stall;
  } else if (good && parts[0] == "truncate") {
    fault.kind = FaultKind::truncate;
  } else {
    good = false;
  }
  if (!good) {
    throw Error(ErrorCode::invalid_argument, cat("TUTTI_FAULT='", text, "' is not a fault"),
                {.remedy = "write kill, stall or truncate, a rank and a message, as in kill:1:5"});
  }
  return fault;
}

std::byte* FaultTransport::reserve(std::span<const int> peers, int lane, size_t bytes, int credit) {
  return stalled_ ? nullptr : inner_->reserve(peers, lane, bytes, credit);
}

const MessageHeader* FaultTransport::front(int peer, int lane) {
  return stalled_ ? nullptr : inner_->front(peer, lane);
}

// The message at fault goes through commit(); the others as they would without this wrapper.
bool FaultTransport::write(int peer, int lane, const MessageHeader& header,
                           std::span<const std::byte> payload, int credit) {
  if (sent_ + 1 == fault_.message) return Transport::write(peer, lane, header, payload, credit);
  if (stalled_ || !inner_->write(peer, lane, header, payload, credit)) return false;
  ++sent_;
  return true;
}

int FaultTransport::lend(std::span<const int> peers, int lane, const MessageHeader& header,
                         std::span<const std::byte> payload) {
  if (stalled_) return -1;
  MessageHeader cut = header;
  if (sent_ + 1 == fault_.message) {
    switch (fault_.kind) {
      case FaultKind::kill:
        std::raise(SIGKILL);
        return -1;
      case FaultKind::stall:
        stalled_ = true;
        return -1;
      case FaultKind::truncate:
        cut.bytes /= 2;
        break;
    }
  }
  const int loan = inner_->lend(peers, lane, cut, payload.first(cut.bytes));
  if (loan >= 0) ++sent_;
  return loan;
}

void FaultTransport::commit(const MessageHeader& header) {
  if (++sent_ != fault_.message) {
    inner_->commit(header);
    return;
  }
  MessageHeader cut = header;
  switch (fault_.kind) {
    case FaultKind::kill:
      std::raise(SIGKILL);
      return;
    case FaultKind::stall:
      stalled_ = true;
      return;
    case FaultKind::truncate:
      cut.bytes /= 2;
      inner_->commit(cut);
      return;
  }
}

}  // namespace tutti
