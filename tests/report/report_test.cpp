// SPDX-License-Identifier: Apache-2.0
#include "report/report.hpp"

#include "base/error.hpp"
#include "report/table_section.hpp"
#include "tests/traces/temp_folder.hpp"
#include "traces/byte_sink.hpp"

#include <sys/stat.h>

namespace penstock::report_test {
namespace {

Report small() {
  return {.title = "A <b>title</b> & more",
          .summary = "summary",
          .figures = {{"Fits?", "no", "8 < 9 GiB", Verdict::bad}},
          .sections = {section_text(
              TableSection{{"</script><script>alert(1)</script>"}, {{"name"}}, {{"<!--"}}})},
          .notes = {"a note"},
          .command = "penstock simulate 'a<b>.yaml'",
          .scenario = "name: </details><script>alert(2)</script>",
          .version = "1.2.3"};
}

std::size_t count(std::string_view text, std::string_view what) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; ++at) ++n;
  return n;
}

TEST(Report, EscapesWhatComesFromTheUser) {
  const std::string html = report_html(small());
  EXPECT_NE(html.find("<h1>A &lt;b&gt;title&lt;/b&gt; &amp; more</h1>"), std::string::npos);
  EXPECT_NE(html.find("8 &lt; 9 GiB"), std::string::npos);
  EXPECT_NE(html.find("'a&lt;b&gt;.yaml'"), std::string::npos);
  EXPECT_NE(html.find("\\u003c/script>\\u003cscript>alert(1)"), std::string::npos);
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_EQ(html.find("</details><script>"), std::string::npos);
}

TEST(Report, HoldsTheFirstAnswersTheFooterAndThreeScripts) {
  const std::string html = report_html(small());
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(html.ends_with("</html>\n"));
  EXPECT_NE(html.find("class=\"figure bad\""), std::string::npos);
  EXPECT_NE(html.find("penstock 1.2.3"), std::string::npos);
  EXPECT_NE(html.find("<details><summary>The scenario</summary><pre>name: "), std::string::npos);
  EXPECT_EQ(count(html, "</script>"), 3U);  // data, library, page
}

TEST(Report, AsksTheNetworkForNothing) {
  const std::string html = report_html(small());
  EXPECT_NE(html.find("Content-Security-Policy\" content=\"default-src 'none'; script-src "
                      "'sha256-"),
            std::string::npos);
  for (const char* reference : {" src=", "<link", "@import", "url("})
    EXPECT_EQ(html.substr(0, html.find("<script")).find(reference), std::string::npos) << reference;
}

TEST(Report, TakesLessThanAMegabyteBesideItsData) {
  EXPECT_LT(report_html(small()).size(), 1'000'000U);
}

TEST(Report, IsWrittenWhole) {
  const TempFolder folder;
  write_report(small(), folder / "a.html");
  EXPECT_EQ(read_file(folder / "a.html"), report_html(small()));
  EXPECT_EQ(folder.files(), 1U);
}

std::string error_of(const std::string& path) {
  try {
    write_report(small(), path);
  } catch (const SystemError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Report, ThatCannotBeWrittenLeavesTheOldOneAndSaysWhy) {
  const TempFolder folder;
  EXPECT_NE(error_of(folder / "none/a.html").find("No such file or directory"), std::string::npos);
  EXPECT_NE(error_of("/dev/full").find("No space left on device"), std::string::npos);
  mkdir((folder / "taken.html").c_str(), 0777);
  EXPECT_NE(error_of(folder / "taken.html").find("taken.html"), std::string::npos);
  EXPECT_EQ(folder.files(), 1U);  // nothing half-written
}

}  // namespace
}  // namespace penstock::report_test
