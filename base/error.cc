#include "base/error.h"

#include <algorithm>
#include <cstring>

namespace tutti {

namespace {

std::string compose(std::string_view what, const ErrorDetail& detail) {
  std::string text(what);
  if (!detail.where.empty()) text += " [" + detail.where + "]";
  if (!detail.cause.empty()) text += "; likely cause: " + detail.cause;
  if (!detail.remedy.empty()) text += "; remedy: " + detail.remedy;
  std::ranges::replace(text, '\0', '?');  // a NUL in a peer's text would end what()
  return text;
}

}  // namespace

std::string_view name(ErrorCode code) {
  switch (code) {
    case ErrorCode::ok:
      return "ok";
    case ErrorCode::invalid_argument:
      return "invalid argument";
    case ErrorCode::mismatch:
      return "mismatch between ranks";
    case ErrorCode::rank_died:
      return "rank died";
    case ErrorCode::connection_lost:
      return "connection lost";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::aborted:
      return "aborted";
    case ErrorCode::bootstrap:
      return "bootstrap failed";
    case ErrorCode::system:
      return "system error";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::internal:
      return "internal error";
    case ErrorCode::corrupted:
      return "data corrupted";
  }
  return "unknown error";
}

Error::Error(ErrorCode code, std::string_view what, const ErrorDetail& detail)
    : code_(code),
      rank_(detail.rank),
      text_(std::make_shared<const std::string>(compose(what, detail))) {}

Error system_error(std::string_view what, int errno_value, const ErrorDetail& detail) {
  std::string text(what);
  text += ": ";
  text += std::strerror(errno_value);
  text += " (errno " + std::to_string(errno_value) + ")";
  return Error(ErrorCode::system, text, detail);
}

}  // namespace tutti
