// Where ranks that do not know each other yet meet: small values by key. A file is one; a caller
// that has another (torch's Store, PMIx, a broadcast of its own) puts it into Job::rendezvous.
//
// The bootstrap asks for one value, the address of rank 0; all else it says on connections.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace tutti {

// Calls may throw Error; one that get() throws is said if the value does not come in time.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // For people: "the rendezvous file /shared/meet".
  virtual std::string name() const { return "the rendezvous"; }
  // A line of text, for all ranks to get.
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual void remove(const std::string& key) = 0;
  // Nothing as long as it is not set. Must not block: whoever waits for a value asks again, and
  // hears meanwhile what the launcher tells.
  virtual std::optional<std::string> get(const std::string& key) = 0;
};

namespace bootstrap {

// A file for each key on a file system that all ranks share: PATH.KEY.
class FileRendezvous final : public Rendezvous {
 public:
  explicit FileRendezvous(std::string path) : path_(std::move(path)) {}
  std::string name() const override { return "the rendezvous file " + path_; }
  // Written under another name and renamed, so that nobody reads half of it.
  void set(const std::string& key, const std::string& value) override;
  void remove(const std::string& key) override;
  // Nothing, too, while the file is not one of ours.
  std::optional<std::string> get(const std::string& key) override;

 private:
  std::string file_of(const std::string& key) const { return path_ + "." + key; }

  const std::string path_;
};

// A value that is there as long as this.
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
