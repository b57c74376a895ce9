// Parses bandwidths and latencies in the units that people and other programs write.
#pragma once

#include <string_view>

namespace tutti {

// Parses a bandwidth and returns it in GB/s (1e9 bytes per second). Accepts "50GB/s", "400Gbps" and
// "400Gbit/s" (bits), "100Mbps", or "50", which is GB/s. Throws Error(invalid_argument) that quotes
// the text if it is not a bandwidth above 0.
double parse_bandwidth(std::string_view text);

// Parses a latency and returns it in microseconds. Accepts "1us", "500ns", "0.001ms", "1e-6s", or
// "1", which is us. Throws Error(invalid_argument) if the text is not a latency of at least 0.
double parse_latency(std::string_view text);

}  // namespace tutti
