#include "base/svg.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace tutti::svg {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        // XML forbids control characters.
        result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
  }
  return result;
}

std::string fixed(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

std::string hsl(double hue, double saturation, double lightness) {
  const double range = saturation * std::min(lightness, 1 - lightness);
  const auto channel = [&](double shift) {
    const double k = std::fmod(12 * hue + shift, 12.0);
    const double level = lightness - range * std::max(-1.0, std::min({k - 3.0, 9.0 - k, 1.0}));
    return static_cast<int>(std::lround(255 * level));
  };
  char text[8];
  std::snprintf(text, sizeof(text), "#%02x%02x%02x", channel(0) & 255, channel(8) & 255,
                channel(4) & 255);
  return text;
}

void text(std::ostream& out, double x, double y, int size, const char* anchor,
          std::string_view colour, std::string_view words, bool bold) {
  out << "<text x=\"" << fixed(x) << "\" y=\"" << fixed(y) << "\" font-size=\"" << size
      << "\" text-anchor=\"" << anchor << "\" fill=\"" << colour << '"'
      << (bold ? " font-weight=\"bold\"" : "") << '>' << escaped(words) << "</text>\n";
}

void line(std::ostream& out, double x1, double y1, double x2, double y2, std::string_view colour,
          double width, bool dashed) {
  out << "<line x1=\"" << fixed(x1) << "\" y1=\"" << fixed(y1) << "\" x2=\"" << fixed(x2)
      << "\" y2=\"" << fixed(y2) << "\" stroke=\"" << colour << "\" stroke-width=\"" << fixed(width)
      << '"' << (dashed ? " stroke-dasharray=\"5 4\"" : "") << "/>\n";
}

std::string document(const std::string& title, double width, double height,
                     const std::string& body) {
  return cat("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", fixed(width), "\" height=\"",
             fixed(height), "\" viewBox=\"0 0 ", fixed(width), ' ', fixed(height),
             "\" font-family=\"sans-serif\">\n<title>", escaped(title), "</title>\n",
             "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n", body, "</svg>\n");
}

}  // namespace tutti::svg
