// Reads documents from columns of Parquet and Arrow files. There is no small C++ library for these
// formats, so a Python program with pyarrow reads them in batches of rows and sends the texts
// through a pipe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/fd.h"
#include "training/data/documents.h"

namespace tutti::training {

class ColumnReader final : public DocumentReader {
 public:
  // Starts the Python program. Throws Error if the file or Python is missing. next() throws if the
  // file is of another kind, the text column is missing, or pyarrow is missing.
  ColumnReader(std::string path, const DocumentFields& fields);
  ~ColumnReader() override;  // Terminates the Python program.
  ColumnReader(const ColumnReader&) = delete;
  ColumnReader& operator=(const ColumnReader&) = delete;

  std::optional<Document> next() override;
  uint64_t position() const override { return position_; }

 private:
  struct Record {
    char kind = 0;
    std::string text;
  };
  Record read_record();
  void read_exactly(std::span<char> bytes);

  std::string path_;
  std::string python_;
  DocumentFields fields_;
  pid_t child_ = -1;
  Fd pipe_;
  uint64_t position_ = 0;
  bool ended_ = false;
};

}  // namespace tutti::training
