// Divides the documents of many files into pieces that can be tokenized independently.
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

// A group of documents, of about a MiB in total.
struct Pieces {
  std::vector<Document> documents;  // whole documents, or parts of long ones
  bool held_out = false;            // true if the documents are for validation
  uint64_t position = 0;            // number of bytes that have been read, counted over all files
  bool is_end() const { return documents.empty(); }
};

struct PieceOptions {
  DocumentFields fields;
  // Returns the last position at which a text may be cut (Tokenizer::last_cut).
  std::function<size_t(std::string_view)> last_cut;
  // True: documents are joined without a separating token, as if all files were one text. A newline
  // then ends each document of JSON lines and of columns.
  bool joined = false;
  // Position, counted in bytes over all files, from which documents are held out. A text is cut
  // there or shortly before, so that no word is cut. In JSON lines and columns, whole documents are
  // held out. If not set, nothing is held out.
  std::optional<uint64_t> held_out_from;
};

// Reads the pieces. Memory use grows only with the longest document of JSON lines or columns, not
// with the files.
class PieceReader {
 public:
  PieceReader(std::vector<TextFile> files, PieceOptions options);

  // Returns the next pieces in order; empty at the end. Throws Error that names the file.
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
  std::unique_ptr<DocumentReader> reader_;  // reader of the current file
  DocumentKind kind_ = DocumentKind::text;  // kind of the current file
  uint64_t before_ = 0;                     // bytes in earlier files
  uint64_t from_ = 0;                       // byte at which the document that was read last starts
  uint64_t to_ = 0;                         // byte at which that document ends
  std::optional<Document> waiting_;         // first held-out document, kept for the next pieces
  std::string pending_;                     // text that has not been cut yet
  bool begins_ = true;                      // true if pending_ is the beginning of its document
  bool holding_out_ = false;
  size_t size_ = 0;  // bytes in the pieces so far
};

}  // namespace tutti::training
