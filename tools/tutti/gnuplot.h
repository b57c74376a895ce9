// Pictures drawn by gnuplot.
#pragma once

#include <string>

namespace tutti::tool {

// 'text' as a string of gnuplot's language.
std::string gnuplot_string(const std::string& text);
// The command that sets a picture's title, in lines that fit its width.
std::string gnuplot_title(const std::string& text);

// A picture that was asked for by a command's option.
class Picture {
 public:
  // An empty path: no picture. Throws Error, naming `option`, where the file's name does not end
  // with .svg or .png, where it cannot be written, and where gnuplot is not installed.
  Picture(std::string path, const std::string& option);

  bool wanted() const { return !path_.empty(); }
  // Runs gnuplot on the script, whose terminal, size and font are set already. Throws Error(system)
  // where that fails.
  void draw(const std::string& script) const;

 private:
  std::string path_;
};

}  // namespace tutti::tool
