#include "training/setup/help_format.h"

#include <CLI/CLI.hpp>
#include <string>

#include "base/text.h"

namespace tutti {

namespace {

constexpr size_t kWidth = 100;
// width of the column of names: CLI11's default, which lists of subcommands use
constexpr size_t kNameWidth = 30;

// Wraps `text` to lines with an indentation of kNameWidth, except the first line.
std::string wrapped(const std::string& text) {
  std::string all;
  size_t length = 0;  // length of the current line
  for (const std::string& word : split(text, ' ')) {
    if (length > 0 && length + 1 + word.size() > kWidth - kNameWidth) {
      all += '\n' + std::string(kNameWidth, ' ');
      length = 0;
    }
    all += (length > 0 ? " " : "") + word;
    length += (length > 0 ? 1 : 0) + word.size();
  }
  return all;
}

// Returns the default of an option, which CLI11 shows in brackets if it is a list.
std::string default_of(const CLI::Option& option) {
  const bool needs_no_value = option.get_expected_min() == 0;
  std::string value = needs_no_value ? "" : option.get_default_str();
  if (value.starts_with('[') && value.ends_with(']')) value = value.substr(1, value.size() - 2);
  return value;
}

class HelpFormat : public CLI::Formatter {
 public:
  // Formats an option. At least two spaces separate a name from a description on the same line.
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const std::string name =
        "  " + make_option_name(option, is_positional) + make_option_opts(option);
    const std::string description = wrapped(make_option_desc(option));
    if (description.empty()) return name + '\n';
    const bool fits = name.size() + 2 <= kNameWidth;
    const std::string gap =
        fits ? std::string(kNameWidth - name.size(), ' ') : '\n' + std::string(kNameWidth, ' ');
    return cat(name, gap, description, '\n');
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return "";
    std::string text;
    if (!option->get_type_name().empty()) text += ' ' + option->get_type_name();
    const bool is_list = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    if (is_list && option->get_delimiter() == '\0') text += " ...";
    if (option->get_required()) text += " REQUIRED";
    for (const CLI::Option* needed : option->get_needs()) text += " Needs: " + needed->get_name();
    return text;
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string value = default_of(*option);
    return option->get_description() + (value.empty() ? "" : cat(" (default: ", value, ')'));
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_format() { return std::make_shared<HelpFormat>(); }

}  // namespace tutti
