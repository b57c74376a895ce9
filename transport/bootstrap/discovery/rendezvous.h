// A store of small values by key, in which ranks that do not know each other yet meet. A file is
// one implementation; a caller with another (torch's Store, PMIx, a broadcast) sets
// Job::rendezvous.
//
// The bootstrap reads one value, the address of rank 0; everything else uses connections.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace tutti {

// Calls may throw Error; an error of get() is reported if the value does not arrive in time.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Shown in messages: "the rendezvous file /shared/meet".
  virtual std::string name() const { return "the rendezvous"; }
  // Stores a line of text for all ranks.
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual void remove(const std::string& key) = 0;
  // Returns nullopt while the key is not set. Must not block: the caller polls, and watches the
  // launcher meanwhile.
  virtual std::optional<std::string> get(const std::string& key) = 0;
};

namespace bootstrap {

// A file per key on a file system that all ranks share: PATH.KEY.
class FileRendezvous final : public Rendezvous {
 public:
  explicit FileRendezvous(std::string path) : path_(std::move(path)) {}
  std::string name() const override { return "the rendezvous file " + path_; }
  // Written under another name and renamed, so that readers never see a partial file.
  void set(const std::string& key, const std::string& value) override;
  void remove(const std::string& key) override;
  // Also returns nullopt while the file is not one of ours.
  std::optional<std::string> get(const std::string& key) override;

 private:
  std::string file_of(const std::string& key) const { return path_ + "." + key; }

  const std::string path_;
};

// A value that is removed on destruction.
class Published {
 public:
  Published(std::shared_ptr<Rendezvous> rendezvous, std::string key, const std::string& value);
  ~Published();
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;

 private:
  const std::shared_ptr<Rendezvous> rendezvous_;
  const std::string key_;
};

}  // namespace bootstrap
}  // namespace tutti
