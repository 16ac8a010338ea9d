// SPDX-License-Identifier: Apache-2.0
// penstock merge
#include "sweep/merge.hpp"

#include "base/exit_codes.hpp"
#include "base/say.hpp"
#include "base/units.hpp"
#include "cli/options.hpp"

namespace penstock {

int run_merge(const Arguments& arguments) {
  if (!arguments.flag("output"))
    throw InputError("penstock merge", "needs a file to write: -o FILE.csv, .jsonl or .sqlite");
  const Merged merged =
      merge_shards(arguments.positional, arguments.value("output"),
                   arguments.flag("force") ? Existing::overwrite : Existing::refuse);
  const auto count = [](std::uint64_t n) { return format_count(static_cast<std::int64_t>(n)); };
  const std::string failed = fmt::format(
      "; {} failed: the sweep's own command with --resume tries them again", count(merged.failed));
  say("{} rows of {} shards{}\n", count(merged.rows), arguments.positional.size(),
      merged.failed > 0 ? failed : "");
  return exit_ok;
}

}  // namespace penstock
