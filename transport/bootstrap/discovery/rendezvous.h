// A store of small values by key, in which ranks that do not know each other yet meet. A file is
// one implementation. A caller that has another store (torch's Store, PMIx, a broadcast) sets
// Job::rendezvous.
//
// The bootstrap reads only one value here, the address of rank 0.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace tutti {

// The interface of a store. Calls may throw Error. An error of get() is reported only if the value
// does not arrive in time.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Returns the name for messages: "the rendezvous file /shared/meet".
  virtual std::string name() const { return "the rendezvous"; }
  // Stores a line of text for all ranks.
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual void remove(const std::string& key) = 0;
  // Returns the value; nullopt while the key is not set. It must not block, because the caller
  // polls it and watches the launcher meanwhile.
  virtual std::optional<std::string> get(const std::string& key) = 0;
};

namespace bootstrap {

// A file per key on a file system that all ranks share: PATH.KEY.
class FileRendezvous final : public Rendezvous {
 public:
  explicit FileRendezvous(std::string path) : path_(std::move(path)) {}
  std::string name() const override { return "the rendezvous file " + path_; }
  // Writes the value to a file of another name and renames that, so that readers never see a
  // partial file.
  void set(const std::string& key, const std::string& value) override;
  void remove(const std::string& key) override;
  // Returns nullopt also if the file exists but was not written by set().
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
