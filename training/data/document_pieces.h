// The documents of many files, cut into pieces that can be tokenized apart from each other.
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

// About a MiB of them.
struct Pieces {
  std::vector<Document> documents;  // or parts of documents
  bool held_out = false;            // for validation
  uint64_t position = 0;            // bytes of all files that have been read
  bool is_end() const { return documents.empty(); }
};

struct PieceOptions {
  DocumentFields fields;
  // The last place where a text may be cut (Tokenizer::last_cut).
  std::function<size_t(std::string_view)> last_cut;
  // No token comes between documents: texts are one, as if the files were, and a newline ends each
  // document of JSON lines and of columns.
  bool joined = false;
  // Documents are held out from this one of the files' bytes on, or shortly before it, so that no
  // word is cut: of JSON lines and columns whole ones. None: none are.
  std::optional<uint64_t> held_out_from;
};

// Memory does not grow with the files, but with the longest document of JSON lines or columns.
class PieceReader {
 public:
  PieceReader(std::vector<TextFile> files, PieceOptions options);

  // The next pieces in order; without documents at the end. Throws Error naming the file.
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
  uint64_t before_ = 0;                     // bytes of the files before it
  uint64_t from_ = 0;                       // where the document read last begins
  uint64_t to_ = 0;                         // and ends
  std::optional<Document> waiting_;         // for the next pieces: the first one that is held out
  std::string pending_;                     // text that is not yet cut
  bool begins_ = true;                      // nothing of its document comes before
  bool holding_out_ = false;
  size_t size_ = 0;  // bytes in the pieces so far
};

}  // namespace tutti::training
