// Draws pictures by gnuplot.
#pragma once

#include <string>

namespace tutti::tool {

// Returns the text quoted as a gnuplot string.
std::string gnuplot_string(const std::string& text);
// Returns the command that sets a picture's title, wrapped to its width.
std::string gnuplot_title(const std::string& text);

// A picture that a command-line option requests.
class Picture {
 public:
  // Creates the picture; an empty path means no picture. Throws Error that names `option` if the
  // file's name does not end with .svg or .png, if it cannot be written, or if gnuplot is not
  // installed.
  Picture(std::string path, const std::string& option);

  bool wanted() const { return !path_.empty(); }
  // Runs gnuplot on the script. Terminal, size and font are set before. Throws Error(system) if
  // gnuplot fails.
  void draw(const std::string& script) const;

 private:
  std::string path_;
};

}  // namespace tutti::tool
