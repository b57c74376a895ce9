// The documents in files: texts as they are, JSON lines, Parquet and Arrow.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::training {

// Where a record has its text. Names with dots reach into objects: "meta.body" is the "body" in
// what is under "meta".
struct DocumentFields {
  std::string text = "text";
  // Of fine-tuning: the completion is learnt after the prompt, which is not. Taken where a record
  // has both and no text.
  std::string prompt = "prompt";
  std::string completion = "completion";
  bool pairs_only = false;         // records have prompts and completions, whatever else
  std::string python = "python3";  // with pyarrow, which reads Parquet and Arrow
};

// A document, or a part of a long one.
struct Document {
  std::string text;
  std::optional<std::string> prompt;  // comes before the text, and is not to be learnt
  bool begins = true;                 // nothing of the document comes before
  bool ends = true;                   // nothing comes after
};

class DocumentReader {
 public:
  virtual ~DocumentReader() = default;
  // The next document; none at the end. Throws Error naming the file, and the line.
  virtual std::optional<Document> next() = 0;
  // How many bytes of the file on disk have been taken so far, about.
  virtual uint64_t position() const = 0;
};

enum class DocumentKind {
  text,     // one document, in parts; any name
  lines,    // .jsonl, or .json of such: objects, each in a line
  columns,  // .parquet, .arrow, .feather
};

DocumentKind kind_of(const std::string& path);  // by its name, .gz and .zst aside

// Throws Error naming the path where it cannot be read.
std::unique_ptr<DocumentReader> open_documents(const std::string& path,
                                               const DocumentFields& fields);

}  // namespace tutti::training
