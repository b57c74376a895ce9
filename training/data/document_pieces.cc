#include "training/data/document_pieces.h"

#include <algorithm>
#include <utility>

#include "training/data/byte_source.h"

namespace tutti::training {
namespace {

// Approximate size in bytes of the pieces in which texts are encoded.
constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kRecord = 64;  // estimated overhead of a document
// Size from which a text without a valid cut is cut anywhere. Such a text is not natural language.
constexpr size_t kLongestPiece = 16 * kPiece;

}  // namespace

PieceReader::PieceReader(std::vector<TextFile> files, PieceOptions options)
    : files_(std::move(files)), options_(std::move(options)) {}

bool PieceReader::is_held_out(uint64_t position) const {
  return options_.held_out_from && position >= *options_.held_out_from;
}

std::optional<Document> PieceReader::next_document() {
  if (waiting_) return std::exchange(waiting_, std::nullopt);
  while (file_ < files_.size()) {
    const TextFile& file = files_[file_];
    if (!reader_) reader_ = open_documents(file.path, options_.fields);
    from_ = before_ + std::min(reader_->position(), file.bytes);
    std::optional<Document> document = reader_->next();
    to_ = before_ + std::min(reader_->position(), file.bytes);
    if (document) return document;
    before_ += file.bytes;
    reader_.reset();
    ++file_;
  }
  return std::nullopt;
}

// Turns the first bytes of the pending text into a piece.
void PieceReader::take(size_t bytes, bool ends, Pieces& pieces) {
  if (bytes == 0 && !ends) return;
  pieces.documents.push_back(
      {.text = pending_.substr(0, bytes), .prompt = {}, .begins = begins_, .ends = ends});
  pending_.erase(0, bytes);
  begins_ = ends;
  size_ += bytes;
}

void PieceReader::add_text(Document part, Pieces& pieces) {
  const size_t known = pending_.size();
  pending_ += part.text;
  if (!holding_out_ && options_.held_out_from && to_ >= *options_.held_out_from) {
    // The position inside a part of a compressed file is unknown; such a text is cut at the part's
    // end.
    const bool exact = !is_compressed(files_[file_].path);
    // The position may precede the text, inside a whole document that was not divided.
    const uint64_t before = *options_.held_out_from - std::min(from_, *options_.held_out_from);
    const size_t place = known + (exact ? before : part.text.size());
    take(options_.last_cut(std::string_view(pending_).substr(0, std::min(place, pending_.size()))),
         false, pieces);
    holding_out_ = true;
    if (part.ends) waiting_ = Document{.text = {}, .prompt = {}, .begins = false};
    return;
  }
  if (part.ends && !options_.joined) return take(pending_.size(), true, pieces);
  if (pending_.size() < kPiece) return;
  const size_t cut = options_.last_cut(pending_);
  take(cut == 0 && pending_.size() >= kLongestPiece ? pending_.size() : cut, false, pieces);
}

void PieceReader::add_whole(Document document, Pieces& pieces) {
  take(pending_.size(), false, pieces);
  if (!holding_out_ && is_held_out(from_)) {
    holding_out_ = true;
    waiting_ = std::move(document);
    return;
  }
  if (options_.joined) document.text += '\n';
  size_ += kRecord + document.text.size() + (document.prompt ? document.prompt->size() : 0);
  pieces.documents.push_back(std::move(document));
}

Pieces PieceReader::next() {
  Pieces pieces{.held_out = holding_out_};
  size_ = 0;
  while (size_ < kPiece / 2 && (pieces.held_out == holding_out_ || pieces.documents.empty())) {
    pieces.held_out = holding_out_;
    std::optional<Document> document = next_document();
    if (!document) {
      take(pending_.size(), false, pieces);
      break;
    }
    if (kind_of(files_[file_].path) == DocumentKind::text) {
      add_text(std::move(*document), pieces);
    } else {
      add_whole(std::move(*document), pieces);
    }
  }
  pieces.position = to_;
  return pieces;
}

}  // namespace tutti::training
