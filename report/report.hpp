// SPDX-License-Identifier: Apache-2.0
// A report: one HTML file that holds its charts' data, the code that draws them and their library,
// and asks the network for nothing (its Content-Security-Policy forbids it).
//
// It opens with the answers (does it fit, how fast, why) and closes with what made it: command,
// scenario, version. The library is vendor/echarts.min.js, our part of the page page/*.js and
// *.css; embed.py makes them part of the program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

enum class Verdict : std::uint8_t { neutral, good, bad };

/// One of the first answers: "Fits?", "yes", "the fullest device, 3, uses 31.2 of 40 GiB".
struct KeyFigure {
  std::string question, answer, detail;
  Verdict verdict = Verdict::neutral;
};

struct Report {
  std::string title;
  std::string summary;  ///< one or two lines below the title; may be empty
  std::vector<KeyFigure> figures;
  std::vector<std::string> sections;  ///< each made by a `section_text`
  std::vector<std::string> notes = {};
  std::string command;   ///< the command line, as it was typed
  std::string scenario;  ///< the text of the scenario; may be empty
  std::string version;
};

/// Returns the report as an HTML page.
std::string report_html(const Report& report);

/// Writes the page to a file, completely or not at all; `path` "-" is standard output. Throws
/// SystemError where it cannot be written.
void write_report(const Report& report, const std::string& path);

}  // namespace penstock
