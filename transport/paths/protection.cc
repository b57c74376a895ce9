#include "transport/paths/protection.h"

#include "base/text.h"

namespace tutti {

namespace {

std::string found_changes(std::string_view integrity) {
  if (integrity == "off") return "corruption is detected by TCP's 16-bit checksum only";
  return cat("accidental corruption is detected ",
             integrity == "on" ? "by a 64-bit hash of each message"
                               : "between hosts by a 64-bit hash of each message, within a host by "
                                 "TCP's 16-bit checksum only");
}

}  // namespace

Protection describe_protection(std::string_view encrypt, std::string_view integrity) {
  Protection protection;
  protection.data = encrypt == "on"
                        ? "encrypted and authenticated (TLS 1.3)"
                        : cat("unencrypted (TUTTI_ENCRYPT=", encrypt, "); ",
                              found_changes(integrity), " (TUTTI_INTEGRITY=", integrity, ")");
  protection.control = "encrypted if there is a token, as under `tutti run`; otherwise unencrypted";
  protection.fabrics = encrypt == "on"
                           ? "not used (TUTTI_ENCRYPT=on)"
                           : "unencrypted; corruption is detected by the network's own checks only";
  return protection;
}

}  // namespace tutti
