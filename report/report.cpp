// SPDX-License-Identifier: Apache-2.0
#include "report/report.hpp"

#include "report/embedded.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <functional>

namespace penstock {
namespace {

constexpr std::string_view kVerdicts[] = {"neutral", "good", "bad"};

/// For text in HTML.
std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

using Put = std::function<void(std::string_view)>;

/// JSON for a script element: no `<`, which could end it.
void put_script_data(const Put& put, std::string_view json) {
  for (std::size_t at; (at = json.find('<')) != json.npos; json.remove_prefix(at + 1)) {
    put(json.substr(0, at));
    put("\\u003c");
  }
  put(json);
}

std::string joined(const std::vector<std::string_view>& pieces) {
  std::string text;
  for (const std::string_view piece : pieces) text += piece;
  return text;
}

/// Only the scripts of this page run, known by their hashes, and nothing is fetched. Charts place
/// their tooltips with style attributes.
std::string policy() {
  return fmt::format(
      "default-src 'none'; script-src '{}' '{}'; style-src 'unsafe-inline'; img-src data:; "
      "base-uri 'none'; form-action 'none'",
      embedded::kLibraryHash, embedded::kPageHash);
}

std::string head(const Report& report) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"generator\" content=\"penstock {}\">\n"
      "<title>{}</title>\n<style>\n{}</style>\n</head>\n",
      policy(), escape_html(report.version), escape_html(report.title), joined(embedded::style()));
}

std::string figures(const Report& report) {
  std::string html;
  for (const KeyFigure& figure : report.figures) {
    html += fmt::format(
        "<div class=\"figure {}\"><dt>{}</dt><dd><b>{}</b><span>{}</span></dd></div>\n",
        kVerdicts[static_cast<std::size_t>(figure.verdict)], escape_html(figure.question),
        escape_html(figure.answer), escape_html(figure.detail));
  }
  return html.empty() ? "" : "<dl class=\"figures\">\n" + html + "</dl>\n";
}

std::string header(const Report& report) {
  std::string html = "<header>\n<h1>" + escape_html(report.title) + "</h1>\n";
  if (!report.summary.empty())
    html += "<p class=\"summary\">" + escape_html(report.summary) + "</p>\n";
  html += figures(report);
  for (const std::string& note : report.notes)
    html += "<p class=\"note\">" + escape_html(note) + "</p>\n";
  return html + "</header>\n";
}

std::string footer(const Report& report) {
  std::string html = fmt::format("<footer>\n<p><code>{}</code></p>\n<p>penstock {}</p>\n",
                                 escape_html(report.command), escape_html(report.version));
  if (!report.scenario.empty()) {
    html += "<details><summary>The scenario</summary><pre>" + escape_html(report.scenario) +
            "</pre></details>\n";
  }
  return html + "</footer>\n";
}

void put_data(const Put& put, const Report& report) {
  put("<script type=\"application/json\" id=\"data\">[");
  for (std::size_t i = 0; i < report.sections.size(); ++i) {
    if (i > 0) put(",\n");
    put_script_data(put, report.sections[i]);
  }
  put("]</script>\n");
}

/// Piece by piece, as the data may be large.
void put_page(const Put& put, const Report& report) {
  put(head(report) + "<body>\n" + header(report) +
      "<main id=\"sections\"><noscript><p>The charts need JavaScript.</p></noscript></main>\n" +
      footer(report));
  put_data(put, report);
  put("<script>" + joined(embedded::library()) + "</script>\n<script>" + joined(embedded::page()) +
      "</script>\n</body>\n</html>\n");
}

}  // namespace

std::string report_html(const Report& report) {
  std::string html;
  put_page([&](std::string_view text) { html += text; }, report);
  return html;
}

void write_report(const Report& report, const std::string& path) {
  ByteSink sink(path);
  put_page([&](std::string_view text) { sink.put(text); }, report);
  sink.close();
}

}  // namespace penstock
