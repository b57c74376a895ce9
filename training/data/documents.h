// Reads documents from files: plain text, JSON lines, Parquet and Arrow.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::training {

// Fields of a record that contain its text. Names with dots refer to nested objects: "meta.body" is
// the member "body" of "meta".
struct DocumentFields {
  std::string text = "text";
  // For fine-tuning: the completion is trained on, and the prompt before it is not. These fields
  // are used if a record has both of them and no text.
  std::string prompt = "prompt";
  std::string completion = "completion";
  // true: `text` is ignored, and records must have prompts and completions
  bool pairs_only = false;
  std::string python = "python3";  // needs pyarrow, which reads Parquet and Arrow
};

// A document, or a part of a long one.
struct Document {
  std::string text;
  std::optional<std::string> prompt;  // text before the document that is not trained on
  bool begins = true;                 // true if this part is the beginning of the document
  bool ends = true;                   // true if this part is the end of the document
};

class DocumentReader {
 public:
  virtual ~DocumentReader() = default;
  // Returns the next document, or nothing at the end. Throws Error that names the file and the
  // line.
  virtual std::optional<Document> next() = 0;
  // Returns the approximate number of bytes of the file on disk that have been consumed.
  virtual uint64_t position() const = 0;
};

enum class DocumentKind {
  text,     // a single document, read in parts; files of any other name
  lines,    // files .jsonl and .ndjson, and files .json with one object per line
  columns,  // files .parquet, .arrow, .feather
};

// Returns the kind of a file by its name, ignoring .gz and .zst; reads the first line of a .json
// file.
DocumentKind kind_of(const std::string& path);

// Opens a file. Throws Error that names the path if it cannot be read.
std::unique_ptr<DocumentReader> open_documents(const std::string& path,
                                               const DocumentFields& fields);

}  // namespace tutti::training
