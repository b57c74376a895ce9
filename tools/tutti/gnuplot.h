// Pictures drawn by gnuplot.
#pragma once

#include <string>

namespace tutti::tool {

// Quotes the text as a gnuplot string.
std::string gnuplot_string(const std::string& text);
// Returns the command that sets a picture's title, wrapped to its width.
std::string gnuplot_title(const std::string& text);

// A picture that an option requests.
class Picture {
 public:
  // An empty path means no picture. Throws Error that names `option` if the file's name does not
  // end with .svg or .png, if it cannot be written, or if gnuplot is not installed.
  Picture(std::string path, const std::string& option);

  bool wanted() const { return !path_.empty(); }
  // Runs gnuplot on the script; terminal, size and font are already set. Throws Error(system) if it
  // fails.
  void draw(const std::string& script) const;

 private:
  std::string path_;
};

}  // namespace tutti::tool
