#include "transport/paths/protection.h"

#include "base/text.h"

namespace tutti {

namespace {

std::string found_changes(std::string_view integrity) {
  if (integrity == "off") return "changes on the way are found by TCP's 16-bit checksum only";
  return cat("accidental changes on the way are found ",
             integrity == "on" ? "by a 64-bit hash of each message"
                               : "between hosts by a 64-bit hash of each message, within a host by "
                                 "TCP's 16-bit checksum only");
}

}  // namespace

Protection describe_protection(std::string_view encrypt, std::string_view integrity) {
  Protection protection;
  protection.data = encrypt == "on"
                        ? "encrypted and authenticated (TLS 1.3)"
                        : cat("in the clear (TUTTI_ENCRYPT=", encrypt, "); ",
                              found_changes(integrity), " (TUTTI_INTEGRITY=", integrity, ")");
  protection.control = "encrypted where there is a token, as under `tutti run`; else in the clear";
  protection.fabrics =
      encrypt == "on"
          ? "not used (TUTTI_ENCRYPT=on)"
          : "in the clear; changes on the way are found by the network's own checks only";
  return protection;
}

}  // namespace tutti
