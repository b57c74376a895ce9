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
// The same at the place from which text is held out, so that most of the text remains for training.
constexpr size_t kLongestWord = 4096;

// Returns the beginning of the UTF-8 character at `place`.
size_t character_at(std::string_view text, size_t place) {
  while (place > 0 && place < text.size() && (static_cast<uint8_t>(text[place]) & 0xc0) == 0x80) {
    --place;
  }
  return place;
}

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
    if (!reader_) {
      reader_ = open_documents(file.path, options_.fields);
      kind_ = kind_of(file.path);
    }
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
    // The position may precede the text, inside a whole document that was not divided. In a part of
    // a compressed file it is estimated.
    uint64_t before = *options_.held_out_from - std::min(from_, *options_.held_out_from);
    if (is_compressed(files_[file_].path)) {
      before = static_cast<uint64_t>(static_cast<double>(part.text.size()) *
                                     static_cast<double>(before) /
                                     static_cast<double>(std::max<uint64_t>(1, to_ - from_)));
    }
    const size_t place = std::min(known + before, pending_.size());
    const size_t cut = options_.last_cut(std::string_view(pending_).substr(0, place));
    const bool is_far = place - cut > kLongestWord;
    take(is_far ? character_at(pending_, place) : cut, false, pieces);
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
    if (kind_ == DocumentKind::text) {
      add_text(std::move(*document), pieces);
    } else {
      add_whole(std::move(*document), pieces);
    }
  }
  pieces.position = to_;
  return pieces;
}

}  // namespace tutti::training
