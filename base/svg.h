// SVG shapes. Coordinates and sizes are in pixels, y grows downward; colours are CSS ("#222222").
#pragma once

#include <ostream>
#include <string>
#include <string_view>

namespace tutti::svg {

// Escapes text for an element or an attribute.
std::string escaped(std::string_view text);
// Formats `value` with one decimal.
std::string fixed(double value);

// Converts HSL to CSS. Hue is in turns (0 red, 1/3 green, 2/3 blue), saturation and lightness are
// in [0, 1].
std::string hsl(double hue, double saturation, double lightness);

// Writes the text `words` at (x, y). `anchor` is the part of the text that is placed at x: "start",
// "middle" or "end".
void text(std::ostream& out, double x, double y, int size, const char* anchor,
          std::string_view colour, std::string_view words, bool bold = false);
void line(std::ostream& out, double x1, double y1, double x2, double y2, std::string_view colour,
          double width, bool dashed = false);

// Returns a complete SVG document that shows `body` on a white background.
std::string document(const std::string& title, double width, double height,
                     const std::string& body);

}  // namespace tutti::svg
