#include "training/checkpoint/save.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "training/checkpoint/manifest.h"
#include "training/checkpoint/safetensors.h"

namespace tutti::training {
namespace {

// Converts an error to a report, from which rethrow_error() makes an Error again.
Json to_json(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  const ErrorCode code = ours != nullptr ? ours->code() : ErrorCode::internal;
  return {{"error", error.what()}, {"code", static_cast<int>(code)}};
}

std::string text_of(const Json& report) { return report.dump(-1, Json::BadText::replace); }

void rethrow_error(const Json& report, const std::string& who) {
  if (!report.contains("error")) return;
  throw Error(static_cast<ErrorCode>(report.at("code").get<int>()),
              who + report.at("error").get<std::string>());
}

// Writes this rank's file. Returns the description that rank 0 needs for the manifest.
Json write_rank_file(const SaveRequest& request, const std::string& folder,
                     std::span<const TensorPiece> pieces, const Group& group) {
  std::vector<TensorInfo> tensors;
  for (const TensorPiece& piece : pieces) {
    check_piece(piece);
    if (piece.data.empty()) continue;
    tensors.push_back({piece_name(piece.name, slice_of(piece), piece.first, piece.data.cols),
                       piece.data.dtype,
                       {piece.data.cols}});
  }
  SafetensorsWriter file(cat(folder, '/', rank_file_name(group.rank, group.size)), tensors,
                         {{"format", "tutti-checkpoint"}, {"step", cat(request.step)}});
  const std::string header = file.take_part_checksum();
  Json listed = Json::array();
  for (const TensorPiece& piece : pieces) {
    request.at_phase("before a piece");
    if (piece.source != nullptr) {
      copy_tensor(*piece.source, piece.name, piece.data.dtype, file);
    } else {
      read_parts(piece, [&](std::span<const std::byte> bytes) { file.write(bytes); });
    }
    Json description = describe_piece(piece);
    description["checksum"] = file.take_part_checksum();
    listed.push_back(std::move(description));
  }
  file.finish();
  return {{"bytes", file.size()},
          {"checksum", file.checksum()},
          {"header_checksum", header},
          {"pieces", std::move(listed)}};
}

// Assembles the manifest from all ranks' reports. If reports contain errors, throws the error of
// the lowest rank.
Manifest manifest_of(const SaveRequest& request, const std::vector<std::string>& reports) {
  Manifest manifest{.step = request.step,
                    .run = request.directory->run(),
                    .fence = request.directory->fence(),
                    .model = request.model,
                    .configuration = request.configuration,
                    .state = request.state,
                    .files = {},
                    .tensors = {}};
  std::map<std::string, TensorEntry> tensors;
  for (int rank = 0; rank < static_cast<int>(reports.size()); ++rank) {
    const Json report = Json::parse(reports[static_cast<size_t>(rank)]);
    rethrow_error(report, cat("rank ", rank, ": "));
    manifest.files.push_back({report.at("bytes").get<uint64_t>(),
                              report.at("checksum").get<std::string>(),
                              report.at("header_checksum").get<std::string>()});
    add_described(report.at("pieces"), rank, tensors);
  }
  for (auto& [name, tensor] : tensors) manifest.tensors.push_back(std::move(tensor));
  arrange(manifest);
  return manifest;
}

}  // namespace

CheckpointSave::CheckpointSave(SaveRequest request, std::vector<TensorPiece> pieces, Group group)
    : request_(std::move(request)),
      pieces_(std::move(pieces)),
      group_(std::move(group)),
      failed_(cat("the checkpoint of step ", request_.step, " was not saved: ")) {
  folder_ = done_by_first(group_, failed_, [&] {
    if (request_.directory == nullptr)
      throw Error(ErrorCode::internal, "no directory was specified");
    publication_.emplace(*request_.directory, request_.step);
    return publication_->folder();
  });
  request_.at_phase("folder made");
}

void CheckpointSave::write() {
  try {
    report_ = text_of(write_rank_file(request_, folder_, pieces_, group_));
  } catch (const std::exception& error) {
    report_ = text_of(to_json(error));
  }
  request_.at_phase("own file written");
}

void CheckpointSave::collect() { reports_ = group_.gather_to_first(report_); }

void CheckpointSave::publish() {
  if (group_.rank != 0) return;
  try {
    publication_->publish(to_text(manifest_of(request_, reports_)), request_.at_phase);
    publication_.reset();
    if (request_.best) request_.directory->set_best(request_.step);
    request_.directory->prune(request_.keep);
  } catch (...) {
    problem_ = std::current_exception();
  }
}

void CheckpointSave::conclude() {
  done_by_first(group_, failed_, [&] {
    if (problem_) std::rethrow_exception(problem_);
    return std::string();
  });
  request_.at_phase("pruned");
}

void save_checkpoint(const SaveRequest& request, std::span<const TensorPiece> pieces,
                     const Group& group) {
  CheckpointSave save(request, {pieces.begin(), pieces.end()}, group);
  save.write();
  save.collect();
  save.publish();
  save.conclude();
}

}  // namespace tutti::training
