// Division of many files' documents into pieces that can be tokenized independently.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "training/data/documents.h"
#include "training/data/text_files.h"

namespace tutti::training {

// Pieces of about a MiB in all.
struct Pieces {
  std::vector<Document> documents;  // or parts of documents
  bool held_out = false;            // for validation
  uint64_t position = 0;            // number of bytes of all files that have been read
  bool is_end() const { return documents.empty(); }
};

struct PieceOptions {
  DocumentFields fields;
  // Returns the last place where a text may be cut (Tokenizer::last_cut).
  std::function<size_t(std::string_view)> last_cut;
  // Documents are joined without a separating token, as if the files were one text; a newline ends
  // each document of JSON lines and of columns.
  bool joined = false;
  // Documents are held out from this byte of the files on, or shortly before it, so that no word is
  // cut; for JSON lines and columns whole documents. None: nothing is held out.
  std::optional<uint64_t> held_out_from;
};

// Memory does not grow with the files, only with the longest document of JSON lines or columns.
class PieceReader {
 public:
  PieceReader(std::vector<TextFile> files, PieceOptions options);

  // Returns the next pieces in order; empty at the end. Throws Error naming the file.
  Pieces next();

 private:
  std::optional<Document> next_document();
  void add_text(Document part, Pieces& pieces);
  void add_whole(Document document, Pieces& pieces);
  void take(size_t bytes, bool ends, Pieces& pieces);
  bool is_held_out(uint64_t position) const;

  std::vector<TextFile> files_;
  PieceOptions options_;
  size_t file_ = 0;
  std::unique_ptr<DocumentReader> reader_;  // of that file
  uint64_t before_ = 0;                     // bytes of earlier files
  uint64_t from_ = 0;                       // start of the document read last
  uint64_t to_ = 0;                         // and ends
  std::optional<Document> waiting_;         // first held-out document, kept for the next pieces
  std::string pending_;                     // text that has not been cut yet
  bool begins_ = true;                      // pending_ begins its document
  bool holding_out_ = false;
  size_t size_ = 0;  // bytes in the pieces so far
};

}  // namespace tutti::training
