// Writes small MSCCL files for tests.
#pragma once

#include <string>
#include <vector>

#include "base/text.h"

namespace tutti {

class Xml {
 public:
  // `more`: further attributes of <algo>.
  Xml(const std::string& coll, int gpus, int chunks, const std::string& more = "inplace=\"1\"")
      : text_(cat("<algo name=\"test\" nchannels=\"1\" nchunksperloop=\"", chunks, "\" ngpus=\"",
                  gpus, "\" coll=\"", coll, "\" ", more, ">\n")) {}

  Xml& gpu(int inputs, int outputs, int scratch) {
    close(1);
    text_ += cat("  <gpu id=\"", gpu_++, "\" i_chunks=\"", inputs, "\" o_chunks=\"", outputs,
                 "\" s_chunks=\"", scratch, "\">\n");
    open_ = 1;
    threadblock_ = 0;
    return *this;
  }
  Xml& tb(int send, int recv, int channel = 0) {
    close(2);
    text_ += cat("    <tb id=\"", threadblock_++, "\" send=\"", send, "\" recv=\"", recv,
                 "\" chan=\"", channel, "\">\n");
    open_ = 2;
    step_ = 0;
    return *this;
  }
  // `src`, `dst`: a buffer and an offset, such as "i0". The step waits for step `deps` of
  // threadblock `depid`.
  Xml& step(const std::string& type, const std::string& src, const std::string& dst, int count = 1,
            int depid = -1, int deps = -1) {
    text_ +=
        cat("      <step s=\"", step_++, "\" type=\"", type, "\" srcbuf=\"", src[0], "\" srcoff=\"",
            src.substr(1), "\" dstbuf=\"", dst[0], "\" dstoff=\"", dst.substr(1), "\" cnt=\"",
            count, "\" depid=\"", depid, "\" deps=\"", deps, "\" hasdep=\"0\"/>\n");
    return *this;
  }
  Xml& nop(int depid, int deps) { return step("nop", "i-1", "o-1", 0, depid, deps); }

  std::string text() const {
    Xml copy = *this;
    copy.close(1);
    return copy.text_ + "</algo>\n";
  }

 private:
  // Closes the open elements of this level and of all deeper levels.
  void close(int level) {
    if (open_ >= 2 && level <= 2) text_ += "    </tb>\n";
    if (open_ >= 1 && level <= 1) text_ += "  </gpu>\n";
    open_ = level - 1;
  }

  std::string text_;
  int gpu_ = 0;
  int threadblock_ = 0;
  int step_ = 0;
  int open_ = 0;
};

}  // namespace tutti
